"""What an overloaded participant does first and what it does last: offers go out first, tuples are dropped last.

    keep = 1                      while there is room, or while a partner is still being asked
    keep = share · cpu / load     afterwards, the same for every fragment that runs here

Shedding ends at once when the load fits again, or when a move has taken enough away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHARE = 0.95
"""How much of its CPU a participant that sheds plans to use: the rest is for what cannot be measured in advance."""


@dataclass(frozen=True, slots=True)
class Shedding:
    """When the overload began, None without one, and whether tuples are being dropped; `decide` returns the next.

    >>> calm = Shedding()
    >>> state, keeps = calm.decide({"f": 2.0}, cpu=1.0, asking=True, now=0.0, patience_seconds=10.0)
    >>> keeps
    {}
    >>> state, keeps = state.decide({"f": 2.0}, cpu=1.0, asking=False, now=11.0, patience_seconds=10.0)
    >>> keeps
    {'f': 0.475}
    """

    since: float | None = None
    active: bool = False

    def decide(
        self, loads: Mapping[str, float], *, cpu: float, asking: bool, now: float, patience_seconds: float
    ) -> tuple[Shedding, dict[str, float]]:
        """The keeps from now on, by fragment (none: keep all). `loads` is CPU-seconds/s of all that arrives.

        `asking` says that an offer is open or a move under way. `patience_seconds` is how long an overload may last
        before tuples are dropped for it: the time one pass over the contracts takes.
        """
        total = sum(loads.values())
        if total <= cpu:
            return Shedding(), {}
        since = now if self.since is None else self.since
        # Once dropping has begun it goes on through later offers: their answers are not to be waited for again.
        if not self.active and (asking or now - since < patience_seconds):
            return Shedding(since), {}
        return Shedding(since, active=True), dict.fromkeys(loads, SHARE * cpu / total)
