"""What the latency paper's figures share: its workload, and its engine on a simulated clock.

The engine is the paper's: tuples wait in one FIFO queue and are served at a constant capacity, c_p seconds each; every
250 ms the queue is locked, and a controller may say how many of its N tuples to keep, which are then drawn at random.
Each of the N, kept or dropped, costs c_s seconds of bookkeeping while the queue is locked: nothing is served then, and
what arrives waits in a second queue, which is appended when the lock is opened. Ten sources send 50, 100, 150, 100
tuples/s in turn, ten seconds each, to every query. Capacity and c_s are choices (the paper gives neither): the mean
load of 90 queries, because 80 could be sustained and 100 could not; and half a percent of c_p.

Kalyvianaki et al., Overload Management with Latency Guarantees, sections 2 and 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.control.base import Controller, Observation
from floodway.control.latency import LatencyConfig, LatencyController
from floodway.control.loop import Loop

SOURCE = "latency-guarantees"
RATES = (50.0, 100.0, 150.0, 100.0)
PATTERN_SECONDS = 10.0
TICK_SECONDS = 0.25
SUSTAINED_QUERIES = 90
GATHERING_SHARE = 0.005
"""c_s / c_p: what the bookkeeping of a waiting tuple costs, beside what processing it does."""
QUERIES = tuple(range(20, 201, 20))
TARGETS = (0.5, 1.0, 2.0, 3.0)
PAPER_GAIN = 0.1
SETTLE_SECONDS = 80.0


@dataclass(frozen=True)
class EngineTrace:
    """One run, a value for each tick: mean latency (NaN without results), queue N, tuples kept n, share of CPU busy.

    `locked` is the part of that share which bookkeeping took.

    `latencies` holds (seconds, tuples) of all results after the start.
    """

    times: NDArray[np.float64]
    latency: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kept: NDArray[np.float64]
    busy: NDArray[np.float64]
    locked: NDArray[np.float64]
    latencies: NDArray[np.float64]

    def mean_latency(self, since: float = SETTLE_SECONDS) -> float:
        """Mean latency of all results after `since` seconds."""
        chosen = self.latencies[self.latencies[:, 0] >= since]
        return float(np.average(chosen[:, 1], weights=chosen[:, 2])) if len(chosen) else float("nan")

    def spread(self, since: float = SETTLE_SECONDS) -> float:
        """Standard deviation of the latencies after `since` seconds."""
        chosen = self.latencies[self.latencies[:, 0] >= since]
        mean = self.mean_latency(since)
        return float(np.sqrt(np.average((chosen[:, 1] - mean) ** 2, weights=chosen[:, 2])))

    def settled(self, values: NDArray[np.float64], since: float = SETTLE_SECONDS) -> float:
        """Mean of a value over the ticks after `since` seconds."""
        return float(np.mean(values[self.times >= since]))


def rate(time_seconds: float) -> float:
    """Tuples/s of one source: 50, 100, 150, 100, ten seconds each, repeated.

    >>> [rate(second) for second in (0.0, 15.0, 25.0, 39.0, 41.0)]
    [50.0, 100.0, 150.0, 100.0, 50.0]
    """
    return RATES[int(time_seconds // PATTERN_SECONDS) % len(RATES)]


def law(target_seconds: float, *, gain: float | None = PAPER_GAIN) -> LatencyController:
    """The paper's controller; `gain` None has it chosen from the target."""
    return LatencyController(LatencyConfig(target_seconds=target_seconds, tick_seconds=TICK_SECONDS, gain=gain))


def run_engine(
    controller: Controller[Any] | None,
    queries: int,
    *,
    seconds: float,
    seed: int,
    slowdown: Callable[[float], float] = lambda time: 1.0,
) -> EngineTrace:
    """Run the engine; `slowdown` multiplies the cost of a tuple over time."""
    rng = np.random.default_rng([seed, queries])
    loop = Loop(controller) if controller is not None else None
    capacity = float(np.mean(RATES)) * SUSTAINED_QUERIES
    queue: deque[tuple[float, int]] = deque()  # cohorts: when they came, how many are left
    second: deque[tuple[float, int]] = deque()  # those that came while the queue was locked
    ticks = round(seconds / TICK_SECONDS)
    columns = np.full((ticks, 5), np.nan)
    results: list[tuple[float, float, int]] = []
    carry = credit = lock_seconds = 0.0
    for tick in range(ticks):
        start = tick * TICK_SECONDS
        carry += rate(start) * queries * TICK_SECONDS
        arrived, carry = int(carry), carry - int(carry)
        locked = min(lock_seconds, TICK_SECONDS)
        lock_seconds -= locked
        free = TICK_SECONDS - locked
        outside = round(arrived * locked / TICK_SECONDS)
        if outside:
            second.append((start + locked / 2, outside))
        served, late, room = 0, 0.0, 0
        if free > 0.0:
            queue.extend(second)
            second.clear()
            queue.append((start + locked + free / 2, arrived - outside))
            credit = min(credit, 1.0) + capacity * free / slowdown(start)
            room = int(credit)
            credit -= room
            served, late = _serve(queue, room, (start + locked, free), results)
        waiting = kept = sum(count for _, count in queue)
        latency = late / served if served else None
        if loop is not None and lock_seconds == 0.0:
            seen = Observation(start + TICK_SECONDS, waiting, latency_seconds=latency, kept=served)
            kept = min(waiting, round(loop.step(seen).admit))
            lock_seconds = waiting * GATHERING_SHARE * slowdown(start) / capacity
            if kept < waiting:
                queue = _chosen(queue, kept, rng)
        busy = (locked + free * served / max(room, 1)) / TICK_SECONDS
        columns[tick] = (np.nan if latency is None else latency, waiting, kept, busy, locked / TICK_SECONDS)
    times = np.arange(1, ticks + 1, dtype=np.float64) * TICK_SECONDS
    latency_column, waiting_column, kept_column, busy_column, locked_column = columns.T
    every = np.array(results).reshape(-1, 3)
    return EngineTrace(times, latency_column, waiting_column, kept_column, busy_column, locked_column, every)


def _serve(
    queue: deque[tuple[float, int]], room: int, span: tuple[float, float], results: list[tuple[float, float, int]]
) -> tuple[int, float]:
    """Take up to `room` tuples from the front in `span` (start, length); how many, and the sum of their latencies."""
    served, late = 0, 0.0
    start, length = span
    while queue and served < room:
        came, count = queue.popleft()
        taken = min(count, room - served)
        # Results come evenly over the time: the mean of this part of them.
        end = start + length * (served + taken / 2) / room
        latency = max(end - came, length * taken / room / 2)
        served += taken
        late += latency * taken
        if taken:
            results.append((end, latency, taken))
        if taken < count:
            queue.appendleft((came, count - taken))
    return served, late


def _chosen(queue: deque[tuple[float, int]], kept: int, rng: np.random.Generator) -> deque[tuple[float, int]]:
    """`kept` of the tuples in the queue, drawn at random; their order stays."""
    counts = np.array([count for _, count in queue])
    drawn = rng.multivariate_hypergeometric(counts, kept, method="marginals")
    pairs = zip((came for came, _ in queue), drawn, strict=True)
    return deque((came, int(count)) for came, count in pairs if count)


@lru_cache(maxsize=256)
def controlled(target_seconds: float, queries: int, seed: int, *, chosen: bool = False) -> EngineTrace:
    """A run of 240 s under the paper's law, with its gain or one chosen from the target; cached between figures."""
    controller = law(target_seconds, gain=None if chosen else PAPER_GAIN)
    return run_engine(controller, queries, seconds=240.0, seed=seed)
