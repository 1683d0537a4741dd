"""Simulated plants to close the loop round a controller: the paper's engine, and Spark's micro-batches.

Both count tuples as a fluid with arrival times attached where latency needs them, take the random generator
as an argument and read no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from floodway.control.base import Controller, Decision, Observation
from floodway.control.loop import Loop

Rate = Callable[[float], float]

PAPER_SOURCES = 10
PAPER_RATES = (50.0, 100.0, 150.0, 100.0)
"""Tuples/s of one source, ten seconds each, repeated: 50 -> 100 -> 150 -> 100 -> 50 ..."""


def paper_rate(time_seconds: float) -> float:
    """Tuples/s of all ten sources together."""
    return PAPER_SOURCES * PAPER_RATES[int(time_seconds // 10.0) % len(PAPER_RATES)]


@dataclass(frozen=True)
class Tick:
    """One tick of the engine: mean latency of its results (None without any), tuples waiting, kept and
    served.
    """

    time_seconds: float
    latency_seconds: float | None
    waiting: int
    kept: int
    served: int


def run_engine(
    controller: Controller[Any] | None,
    *,
    capacity: float,
    seconds: float,
    rng: Random,
    rate: Rate = paper_rate,
    tick_seconds: float = 0.25,
) -> list[Tick]:
    """DISSP's engine: a FIFO buffer served at `capacity` tuples/s; at each tick n of the N waiting are kept
    at random.
    """
    loop = Loop(controller) if controller else None
    buffer: deque[float] = deque()
    ticks: list[Tick] = []
    arrivals = credit = 0.0
    for index in range(round(seconds / tick_seconds)):
        start = index * tick_seconds
        arrivals += rate(start) * tick_seconds
        count, arrivals = int(arrivals), arrivals - int(arrivals)
        buffer.extend(start + tick_seconds * (i + 0.5) / count for i in range(count))
        credit += capacity * tick_seconds
        served = min(int(credit), len(buffer))
        credit = credit - served if buffer else 0.0
        ends = [start + tick_seconds * (i + 1) / max(served, 1) for i in range(served)]
        delays = [max(0.0, end - buffer.popleft()) for end in ends]
        latency = sum(delays) / served if served else None
        waiting = kept = len(buffer)
        if loop is not None:
            seen = Observation(start + tick_seconds, waiting, latency_seconds=latency, kept=served)
            kept = min(waiting, round(loop.step(seen).admit))
            chosen = sorted(rng.sample(range(waiting), kept))
            buffer = deque([buffer[i] for i in chosen])
        ticks.append(Tick(start + tick_seconds, latency, waiting, kept, served))
    return ticks


@dataclass(frozen=True)
class Batch:
    """One micro-batch as it ran, and the decision that sized it."""

    start_seconds: float
    seconds: float
    latency_seconds: float
    offered: float
    kept: float
    decision: Decision


@dataclass(frozen=True)
class Engine:
    """P = (overhead + cost n) (1 + noise), latency = P_before / 2 + P + offset; figures arrive `delay`
    batches late.
    """

    overhead: float = 0.3
    cost: float = 0.001
    noise: float = 0.02
    offset: float = 0.0
    delay: int = 1

    @property
    def capacity(self) -> float:
        """Tuples/s of an endless batch: what overload is measured against."""
        return 1.0 / self.cost


def run_batches(
    controller: Controller[Any],
    engine: Engine,
    *,
    rate: Rate,
    seconds: float,
    rng: Random,
    cost: Rate | None = None,
    backlog: float = 0.0,
    loop: Loop | None = None,
) -> list[Batch]:
    """Back-to-back micro-batches: each is offered what arrived during the one before, and sheds the rest.

    `cost` overrides the engine's cost per tuple over time; `delay` 1 reports a batch before the next is
    sized.
    """
    loop = loop or Loop(controller)
    batches: list[Batch] = []
    now, previous, waiting = 0.0, engine.overhead, rate(0.0) * engine.overhead + backlog
    while now < seconds:
        behind = len(batches) - engine.delay
        decision = loop.step(_report(batches[behind] if behind >= 0 else None, now, waiting))
        price = cost(now) if cost else engine.cost
        duration = (engine.overhead + price * decision.admit) * max(0.1, rng.gauss(1.0, engine.noise))
        latency = previous / 2.0 + duration + engine.offset
        batches.append(Batch(now, duration, latency, waiting, decision.admit, decision))
        waiting = rate(now) * duration
        now, previous = now + duration, duration
    return batches


def _report(batch: Batch | None, now: float, waiting: float) -> Observation:
    if batch is None:
        return Observation(now, waiting)
    return Observation(
        now,
        waiting,
        latency_seconds=batch.latency_seconds,
        kept=batch.kept,
        batch_seconds=batch.seconds,
        offered=batch.offered,
    )
