"""What a participant's loop saw last, and the status that people, tests and experiments read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.journal import MoveRow
from floodway.contracts.participant import Participant


@dataclass
class Figures:
    """The latest measures and keeps, and what went wrong so far."""

    measures: Mapping[str, Measure] = field(default_factory=dict)
    keeps: Mapping[str, float] = field(default_factory=dict)
    unreachable: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)

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
        }
