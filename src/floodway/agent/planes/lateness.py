"""How late results are at the outputs, for the nodes before: a factor for their share of the end-to-end target.

Nodes share a target T along each path (`loop/stages.py`). The last one sees what the others really took and corrects
itself; when it cannot make up for them, they must hurry too. So the node that owns an output keeps a factor for it,

    c(t+1) = min(1, max(1/4, c(t) · (1 + q (T − ℓ)/T)))

from the mean latency ℓ of every batch of results, the latency controller's law with a gain q for the delay of the whole
path. The factors travel towards the sources with what is sent there anyway: a child's tables and signs of life, a
member's statistics and its leader's keeps, a node's statistics and the coordinator's choices. A node asks for the
smallest factor of the outputs below it. Late outputs shrink it, timely ones let it grow back to 1; one that nobody has
told anything about for `FORGET_SECONDS` is 1, so outputs that are never late are never spoken of. Pure: time is an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from floodway.control.base import clamp
from floodway.control.latency import choose_gain, law_factor
from floodway.network.model import Network

LEAST_FACTOR = 0.25
FORGET_SECONDS = 30.0
DELAY_BATCHES = 2.0
"""Batches of every node on the path until a change at its beginning shows at its end."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What is left of the share of the target, in (0, 1]; when that was said, and when it was last below 1.

    Times in seconds since 1970.
    """

    value: float
    time_seconds: float
    late_seconds: float = -math.inf

    @classmethod
    def after(cls, before: Factor | None, value: float, now_seconds: float) -> Factor:
        """The next value of a factor."""
        earlier = -math.inf if before is None else before.late_seconds
        return cls(value, now_seconds, now_seconds if value < 1.0 else earlier)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Factors by output: of the node's own outputs, and those that it was told.

    >>> late = Lateness().measured({"q": 3.0}, target_seconds=2.0, depth=1, now_seconds=0.0)
    >>> late.factor({"q"}, now_seconds=1.0), late.factor({"other"}, now_seconds=1.0), late.factor({"q"}, 99.0)
    (0.9, 1.0, 1.0)
    """

    own: Mapping[str, Factor] = field(default_factory=dict)
    told: Mapping[str, Factor] = field(default_factory=dict)

    def measured(
        self, latencies: Mapping[str, float], *, target_seconds: float, depth: int, now_seconds: float
    ) -> Lateness:
        """With the mean latency in seconds of a batch's results at outputs of this node.

        `depth` is the number of queries on the longest path to them.
        """
        gain = choose_gain(1.0, 1.0, DELAY_BATCHES * max(depth, 1))
        found = {
            output: Factor.after(
                self.own.get(output),
                clamp(self._own(output, now_seconds) * law_factor(gain, target_seconds, latency), LEAST_FACTOR, 1.0),
                now_seconds,
            )
            for output, latency in latencies.items()
        }
        return replace(self, own={**self.own, **found}) if found else self

    def hear(self, factors: Mapping[str, float], outputs: Collection[str], now_seconds: float) -> Lateness:
        """With what a peer says; of `outputs` only, and never over what this node measures itself."""
        found = {
            name: Factor.after(self.told.get(name), max(value, LEAST_FACTOR), now_seconds)
            for name, value in factors.items()
            if name in outputs and name not in self.own and (value < 1.0 or name in self.told)
        }
        return replace(self, told={**self.told, **found}) if found else self

    def to_tell(self, now_seconds: float, *, own_only: bool = False) -> dict[str, float]:
        """What peers should know: factors that are fresh, and are below 1 or were not long ago.

        With `own_only` nothing that was heard: what comes back from where it went would never be forgotten.
        """
        every = self.own if own_only else {**self.told, **self.own}
        return {
            name: found.value
            for name, found in every.items()
            if _fresh(found, now_seconds) and now_seconds - found.late_seconds <= FORGET_SECONDS
        }

    def factor(self, outputs: Collection[str], now_seconds: float) -> float:
        """The smallest factor of these outputs; 1 where nothing is known, or nothing new."""
        every = {**self.told, **self.own}
        known = [every[name].value for name in outputs if name in every and _fresh(every[name], now_seconds)]
        return min(known, default=1.0)

    def _own(self, output: str, now_seconds: float) -> float:
        before = self.own.get(output)
        return 1.0 if before is None or not _fresh(before, now_seconds) else before.value


def outputs_below(network: Network, operators: Collection[str]) -> frozenset[str]:
    """Outputs that these operators' tuples come to through other operators; those of their own are left out.

    What leaves a query directly its own controller sees and corrects.
    """
    found = outputs_from(network, operators)
    return frozenset(name for name in found if network.outputs[name].source not in operators)


def outputs_from(network: Network, operators: Collection[str]) -> frozenset[str]:
    """Outputs that these operators' tuples come to."""
    found: set[str] = set()
    seen = set(operators)
    waiting = list(operators)
    while waiting:
        for consumer in network.consumers[waiting.pop()]:
            if consumer in network.outputs:
                found.add(consumer)
            elif consumer not in seen:
                seen.add(consumer)
                waiting.append(consumer)
    return frozenset(found)


def _fresh(found: Factor, now_seconds: float) -> bool:
    return now_seconds - found.time_seconds <= FORGET_SECONDS
