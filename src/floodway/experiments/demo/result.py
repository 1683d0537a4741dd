"""What a run of the demo came to: latency, what was processed in time and in all, and estimates beside the truth.

Who has a target gains nothing by what is late. An event is *in time* if its result is there within twice the target,
which is a mean; of a batch that is partly late, the share in time follows from its newest and its oldest event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from floodway.experiments.demo.shop import WORTH, ShopTotals

PARTS = ("clicks", "orders", "revenue")
DEADLINE_TARGETS = 2.0
"""A result is in time if it is there within this many targets."""


@dataclass(frozen=True, slots=True)
class DemoBatch:
    """One finished batch: its end in seconds since the load began, its latencies, events processed by kind.

    `latency` is the mean over its events, `least` that of the newest, `most` that of the oldest, in seconds.
    """

    ended: float
    latency: float
    least: float
    most: float
    orders: int
    clicks: int

    @property
    def events(self) -> int:
        """Events processed."""
        return self.orders + self.clicks

    def of(self, kind: str) -> int:
        """Events of a kind."""
        return self.orders if kind == "order" else self.clicks

    def share_within(self, seconds: float) -> float:
        """The share of its events whose latency is at most that: they arrived evenly.

        >>> batch = DemoBatch(10.0, latency=3.0, least=2.0, most=4.0, orders=1, clicks=9)
        >>> batch.share_within(1.0), batch.share_within(3.5), batch.share_within(4.0)
        (0.0, 0.75, 1.0)
        """
        if seconds >= self.most or seconds < self.least:
            return float(seconds >= self.most)
        return (seconds - self.least) / (self.most - self.least)


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run. `seconds` is how long the load lasted; batches that end within a target after it still count.

    `load` is what the feeder made, and `warmed` what the job was given before. `estimated` is what the job says of
    both, None where it never got through the events; `ledger` what Floodway says was offered, kept and dropped of both.
    """

    name: str
    seconds: float
    target: float
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
        """Batches that ended early enough to count."""
        return [batch for batch in self.batches if batch.ended <= self.counted_seconds]

    @property
    def counted_seconds(self) -> float:
        """The seconds over which values are taken, the same for every run of one demo."""
        return self.seconds + self.target

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
        return sum(batch.of(kind) for batch in self.counted)

    def in_time(self, kind: str) -> float:
        """Those of them whose results were in time."""
        deadline = DEADLINE_TARGETS * self.target
        return sum(batch.of(kind) * batch.share_within(deadline) for batch in self.counted)

    def share(self, kind: str) -> float:
        """Share of the events of a kind that was processed."""
        offered = self.load.of(kind)
        return self.processed(kind) / offered if offered else 0.0

    def share_in_time(self, kind: str) -> float:
        """Share of the events of a kind that was processed in time."""
        offered = self.load.of(kind)
        return self.in_time(kind) / offered if offered else 0.0

    @property
    def value(self) -> float:
        """What the processed events are worth, late ones included."""
        return sum(worth * self.processed(kind) for kind, worth in WORTH.items())

    @property
    def value_in_time(self) -> float:
        """What the events that were processed in time are worth."""
        return sum(worth * self.in_time(kind) for kind, worth in WORTH.items())

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

    def to_dict(self, optimum: float) -> dict[str, Any]:
        """For --json; score, optimum and value are per second."""
        return {
            "latency": self.latency,
            "last_latency": self.last_latency,
            "offered": {kind: round(self.load.of(kind)) for kind in WORTH},
            "processed": {kind: self.processed(kind) for kind in WORTH},
            "in_time": {kind: round(self.in_time(kind)) for kind in WORTH},
            "score": self.value_in_time / self.counted_seconds,
            "optimum": optimum / self.counted_seconds,
            "value": self.value / self.counted_seconds,
            "estimates": {
                part: None if found is None else {"estimate": found[0], "error": found[1]}
                for part, found in ((part, self.estimate(part)) for part in PARTS)
            },
            "worst_error": max(map(abs, self.errors), default=None),
            "warmed": {kind: round(self.warmed.of(kind)) for kind in WORTH},
            "ledger": self.ledger,
            "batches": len(self.batches),
        }


def optimum(runs: Sequence[DemoRun]) -> float:
    """The best value of these seconds: the best choice of as many events as the fastest of the runs processed.

    All runs are offered the same load for the same seconds, so that none of them can be worth more.
    """
    return max((run.best_value for run in runs), default=0.0)
