"""A plant like Spark on Kafka: two costs, a compiler that warms up, noise, whole backlogs, reports one batch late.

A batch begins when the one before has ended and takes all that has arrived by then. Its keep comes from the last entry
that was valid at its timestamp; the report of the batch before it is still on its way, so a decision acts on the batch
after the next. Time, arrivals and noise are simulated; controller, loop and entry are the real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from floodway.control.base import Controller
from floodway.control.loop import FinishedBatch, KeepLoop
from floodway.spark.shed.chooser import entry_budget
from floodway.spark.shed.control_table import Entry
from floodway.units import PPM

Rate = Callable[[float], float]
EPOCH_SECONDS = 1_700_000_000.0
GUARD_SECONDS = 0.05
STEPS = 20
"""Pieces in which a rate is summed up over a batch."""


@dataclass(frozen=True)
class Plant:
    """P = (a + s N + c n) warm(t) noise, warm(t) = 1 + (warm_factor - 1) exp(-t / warm_seconds).

    `outliers` is the share of batches that take twice as long; `jitter` moves the time at which a batch looks how much
    has arrived, in seconds; `report_seconds` is how long after its end a batch is reported.
    """

    overhead: float = 0.4
    offered_cost: float = 2e-6
    cost: float = 12e-6
    noise: float = 0.05
    outliers: float = 0.02
    warm_factor: float = 2.5
    warm_seconds: float = 20.0
    jitter: float = 0.02
    report_seconds: float = 0.03

    def capacity(self, target_seconds: float) -> float:
        """Tuples per second that batches of P* = T / 1.5 process, warm and with nothing dropped."""
        return (1.0 - self.overhead / (target_seconds / 1.5)) / (self.cost + self.offered_cost)

    def best(self, target_seconds: float, rate: float) -> float:
        """Tuples per second that can be kept of `rate` at the target, warm."""
        period = target_seconds / 1.5
        return min(rate, (period - self.overhead - self.offered_cost * rate * period) / (self.cost * period))

    def seconds(self, time: float, offered: float, kept: float, rng: Random) -> float:
        """How long a batch takes."""
        warm = 1.0 + (self.warm_factor - 1.0) * math.exp(-time / self.warm_seconds)
        slow = 2.0 if rng.random() < self.outliers else 1.0
        ideal = self.overhead + self.offered_cost * offered + self.cost * kept
        return ideal * warm * slow * math.exp(rng.gauss(0.0, self.noise))


@dataclass(frozen=True)
class Ran:
    """One batch as it ran; `lowest` and `highest` are the latencies of its last and its first tuple."""

    start: float
    seconds: float
    offered: float
    kept: float
    lowest: float
    highest: float

    @property
    def latency(self) -> float:
        """Mean latency: tuples arrive evenly between two cuts."""
        return (self.lowest + self.highest) / 2.0

    @property
    def keep(self) -> float:
        """The share that was kept."""
        return self.kept / self.offered if self.offered else 1.0


def run(
    plant: Plant,
    rate: Rate,
    seconds: float,
    rng: Random,
    *,
    controller: Controller[Any] | None = None,
    target: float = 3.0,
    fixed_keep: float = 1.0,
) -> list[Ran]:
    """Batches back to back under a controller, or with a fixed keep."""
    loop = None if controller is None else KeepLoop(controller)
    entries = [Entry(0, 0, keep_ppm=round(fixed_keep * PPM), mode="enforce")]
    found: list[Ran] = []
    reported = 0
    now, cut = 1.0, 0.0
    while now < seconds:
        if loop is not None:
            while (
                reported < len(found) and found[reported].start + found[reported].seconds + plant.report_seconds <= now
            ):
                _report(loop, found[reported], entries, target, plant.report_seconds)
                reported += 1
        entry = [e for e in entries if e.valid_from_us <= _us(now)][-1]
        looked = max(cut, now + rng.uniform(-plant.jitter, plant.jitter))
        offered = _arrived(rate, cut, looked, rng)
        kept = round(offered * entry.keep_at(_us(now)) / PPM)
        took = plant.seconds(now, offered, kept, rng)
        found.append(Ran(now, took, offered, kept, now + took - looked, now + took - cut))
        cut, now = looked, now + took
    return found


def _report(loop: KeepLoop, batch: Ran, entries: list[Entry], target: float, report_seconds: float) -> None:
    ended = batch.start + batch.seconds
    finished = FinishedBatch(batch.start + EPOCH_SECONDS, batch.seconds, round(batch.offered), round(batch.kept))
    decided = loop.step(finished, entries[-1].keep_at(_us(ended)) / PPM, target)
    if decided is None:
        return
    valid = ended + report_seconds + GUARD_SECONDS
    keep = min(PPM, max(1, round(decided.keep * PPM)))
    follow = None if decided.budget is None else entry_budget(decided.budget, decided.offered_rate, _us(ended))
    entries.append(Entry(len(entries), _us(valid), keep, mode="enforce").following(follow))


def _us(seconds: float) -> int:
    return round((EPOCH_SECONDS + seconds) * 1e6)


def _arrived(rate: Rate, begin: float, end: float, rng: Random) -> float:
    step = (end - begin) / STEPS
    mean = step * sum(rate(begin + (i + 0.5) * step) for i in range(STEPS))
    return max(0.0, round(mean + rng.gauss(0.0, math.sqrt(mean)))) if mean > 0.0 else 0.0


def mean_latency(batches: list[Ran]) -> float:
    """Over tuples."""
    return sum(b.latency * b.kept for b in batches) / sum(b.kept for b in batches)


def kept_rate(batches: list[Ran]) -> float:
    """Tuples kept per second."""
    return sum(b.kept for b in batches) / sum(b.seconds for b in batches)


def after(batches: list[Ran], time: float) -> list[Ran]:
    """The batches that begin from then on."""
    return [b for b in batches if b.start >= time]
