"""What a participant's loop saw last, and the status that people, tests and experiments read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.journal import BookedEntry, MoveRow, fragment_of
from floodway.contracts.ledger import Reason
from floodway.contracts.messages import Offer
from floodway.contracts.participant import Participant

SHOWN_FAILURES = 50
"""How many of the last failures a status shows."""


@dataclass
class Figures:
    """The latest measures and keeps, and what went wrong so far; what goes wrong more than once is counted.

    `missed` tells of fragments that others run for this participant how they were served where that was not in full,
    `balance` what it has earned less what it has paid, as of the last period billed.
    """

    measures: Mapping[str, Measure] = field(default_factory=dict)
    keeps: Mapping[str, float] = field(default_factory=dict)
    unreachable: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    missed: dict[str, dict[str, Any]] = field(default_factory=dict)
    balance: float = 0.0
    _counts: Counter[str] = field(default_factory=Counter)

    def fail(self, where: str, error: Exception | str) -> None:
        """Something failed, and the participant goes on."""
        self._counts[where] += 1
        text = error if isinstance(error, str) else str(error) or type(error).__name__
        times = f" ({self._counts[where]} times)" if self._counts[where] > 1 else ""
        self.failures.pop(where, None)  # the latest last
        self.failures[where] = f"{text[:300]}{times}"
        while len(self.failures) > SHOWN_FAILURES:
            oldest = next(iter(self.failures))
            self.failures.pop(oldest, None)
            self._counts.pop(oldest, None)

    def served(self, taker: str, entries: Iterable[BookedEntry], late_seconds: Mapping[str, float]) -> None:
        """What a taker's bill tells of how it serves; `late_seconds` is the delay allowed, by fragment, if any."""
        for one in entries:
            if one.entry.reason is not Reason.LOAD:
                continue
            fragment = fragment_of(one)
            delay = one.delay_seconds or 0.0
            if one.keep < 1.0 or delay > late_seconds.get(fragment, inf):
                found = {"by": taker, "keep": one.keep, "delay_seconds": one.delay_seconds}
                self.missed[fragment] = found | {"until": one.entry.at}
            else:
                self.missed.pop(fragment, None)

    def status(self, machine: Participant, moves: Iterable[MoveRow]) -> dict[str, Any]:
        """Load, fragments and moves, as JSON can hold them; loads in CPU-seconds/s, rates in tuples/s."""
        return {
            "name": machine.name,
            "load": machine.load.cpu,
            "fragments": {
                name: {
                    "cpu": held.task.load.cpu,
                    "rate": held.task.load.rate,
                    "delay_seconds": self.measures[name].delay_seconds if name in self.measures else None,
                    "malformed": self.measures[name].malformed if name in self.measures else 0,
                    "for": held.contract.giver if held.contract else machine.name,
                    "price": held.price,
                }
                for name, held in machine.holdings.items()
            },
            "keeps": dict(self.keeps),
            "lent": {name: away.taker for name, away in machine.away.items()},
            "offer": None if machine.search is None else _offer(machine.search.offer),
            "balance": self.balance,
            "contracts": [
                {"from": one.giver, "to": one.taker, "lowest_price": one.min_price, "highest_price": one.max_price}
                | {"kinds": "all" if one.kinds is None else ", ".join(sorted(one.kinds))}
                for one in (*machine.gives_to.values(), *machine.takes_from.values())
            ],
            "moves": [
                {"id": row.id, "to": row.taker, "from": row.giver, "state": row.state, "at": row.at}
                | {"fragments": sorted(row.units), "price": row.price, "seconds": dict(row.seconds), "note": row.note}
                for row in moves
            ],
            "unreachable": dict(self.unreachable),
            "failures": dict(self.failures),
            "missed": dict(self.missed),
        }


def _offer(offer: Offer) -> dict[str, Any]:
    return {"to": offer.taker, "fragments": [task.name for task in offer.tasks], "price": offer.price}
