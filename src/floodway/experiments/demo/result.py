"""What a run of the demo came to: latency, what was processed, and what the job says happened beside what did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from floodway.experiments.demo.shop import WORTH, ShopTotals

PARTS = ("clicks", "orders", "revenue")


@dataclass(frozen=True, slots=True)
class DemoBatch:
    """One finished batch: its end in seconds since the load began, mean latency, events processed by kind."""

    ended: float
    latency: float
    orders: int
    clicks: int

    @property
    def events(self) -> int:
        """Events processed."""
        return self.orders + self.clicks


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run. `seconds` is how long the load lasted, and `grace` how long after it batches still count.

    `load` is what the feeder made, and `warmed` what the job was given before. `estimated` is what the job says of
    both, None where it never got through the events; `ledger` what Floodway says was offered, kept and dropped of both.
    """

    name: str
    seconds: float
    grace: float
    load: ShopTotals
    batches: Sequence[DemoBatch]
    warmed: ShopTotals
    estimated: ShopTotals | None = None
    ledger: dict[str, int] = field(default_factory=dict)

    @property
    def truth(self) -> ShopTotals:
        """What all events came to."""
        return self.load + self.warmed

    @property
    def counted(self) -> list[DemoBatch]:
        """Batches that ended in time to count."""
        return [batch for batch in self.batches if batch.ended <= self.seconds + self.grace]

    @property
    def latency(self) -> float | None:
        """Mean latency in seconds, the first third of the load left out; None if nothing came out."""
        settled = [batch for batch in self.counted if batch.ended > self.seconds / 3]
        events = sum(batch.events for batch in settled)
        return sum(batch.latency * batch.events for batch in settled) / events if events else None

    @property
    def last_latency(self) -> float | None:
        """Mean latency of the last batch that counts."""
        return self.counted[-1].latency if self.counted else None

    def processed(self, kind: str) -> int:
        """Events of a kind in the batches that count."""
        return sum(batch.orders if kind == "order" else batch.clicks for batch in self.counted)

    def share(self, kind: str) -> float:
        """Share of the events of a kind that was processed."""
        offered = self.load.of(kind)
        return self.processed(kind) / offered if offered else 0.0

    @property
    def value(self) -> float:
        """What the processed events are worth."""
        return sum(worth * self.processed(kind) for kind, worth in WORTH.items())

    @property
    def best_value(self) -> float:
        """The most that as many events of this load could be worth: those worth most first."""
        left, value = sum(self.processed(kind) for kind in WORTH), 0.0
        for kind, worth in sorted(WORTH.items(), key=lambda item: -item[1]):
            taken = min(left, round(self.load.of(kind)))
            left, value = left - taken, value + worth * taken
        return value

    @property
    def errors(self) -> list[float]:
        """Relative errors of clicks, orders and revenue by category."""
        if self.estimated is None:
            return []
        return [
            getattr(self.estimated, part).get(name, 0.0) / true - 1.0
            for part in PARTS
            for name, true in getattr(self.truth, part).items()
            if true > 0
        ]

    def estimate(self, part: str) -> tuple[float, float] | None:
        """What the job says of a part over all categories, and its relative error; None where it does not know."""
        if self.estimated is None:
            return None
        found, true = sum(getattr(self.estimated, part).values()), sum(getattr(self.truth, part).values())
        return found, found / true - 1.0 if true else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "latency": self.latency,
            "last_latency": self.last_latency,
            "offered": {kind: round(self.load.of(kind)) for kind in WORTH},
            "processed": {kind: self.processed(kind) for kind in WORTH},
            "score": self.value / (self.seconds + self.grace),
            "optimum": self.best_value / (self.seconds + self.grace),
            "estimates": {
                part: None if found is None else {"estimate": found[0], "error": found[1]}
                for part, found in ((part, self.estimate(part)) for part in PARTS)
            },
            "worst_error": max(map(abs, self.errors), default=None),
            "warmed": {kind: round(self.warmed.of(kind)) for kind in WORTH},
            "ledger": self.ledger,
            "batches": len(self.batches),
        }
