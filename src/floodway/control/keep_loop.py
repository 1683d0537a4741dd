"""From finished micro-batches to the keep of those to come: offered rate, work that will wait, decision, budget.

A decision takes effect one or two batches later, because an engine reports a batch while the next one runs. The work
that a decision chooses from is therefore a forecast: the offered rate times the expected length of the batch that is
running, during which the tuples of the next one arrive.

    N = r max(P, pace),   P = forecast(r max(P_last, pace), k r max(P_last, pace))

r is the offered rate, k the keep in force, and `pace` the time between the starts of two batches where the query waits
for its trigger or for data (0 otherwise). Where a source says what a batch left in it, because of a read limit, r
counts that too, and the next batch is offered as much as this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodway.control.base import Controller, Decision, Observation, Plain
from floodway.control.forecast import BATCH_SHARE
from floodway.control.loop import Loop

IDLE_FACTOR = 1.2
"""A query whose batches begin at intervals longer than this many times a batch waits for its trigger or for data."""

RATE_BATCHES = 3
"""Batches over which the offered rate is taken: sources hand over whole blocks, so one batch is too few."""

RATE_STEP = 1.3
"""Factor by which a batch's own rate must differ from the mean to be a step in load: the mean then begins anew."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """What was counted in one micro-batch, times in seconds of the epoch.

    `arrival_seconds` is the mean arrival of the kept tuples, None where tuples have no arrival time. `backlog` is what
    was there when the batch was cut and that it left in the source, None where the source does not tell.
    """

    started_seconds: float
    seconds: float
    offered: int
    kept: int
    arrival_seconds: float | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class KeepDecision:
    """The share to keep of the batches to come, with the figures that it follows from.

    `offered_rate` is in tuples per second, `batch_seconds` how long a batch that keeps this share is expected to take.
    `budget`, in tuples, is for the batch after the running one; None where the keep is not to be adapted to that
    batch's own length. `capacity_needed` is how many times the present capacity would keep everything at the target;
    None while costs are not known, or where no capacity would. `held_seconds` is how long an overload has lasted for
    which nothing is dropped yet (`patience.py`).
    """

    keep: float
    control: Decision
    offered_rate: float
    latency_seconds: float
    batch_seconds: float
    budget: float | None = None
    capacity_needed: float | None = None
    held_seconds: float | None = None


class KeepLoop:
    """The controller of one run of one query, and what it remembers of the last batches."""

    def __init__(self, controller: Controller[Any], snapshot: Mapping[str, Plain] | None = None) -> None:
        self._loop = Loop(controller, snapshot)
        self._last: FinishedBatch | None = None
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=RATE_BATCHES)
        """Tuples offered and seconds in which they came, of the last batches."""

    def snapshot(self) -> dict[str, Plain]:
        """What a restarted process needs to resume: pass it to a new KeepLoop."""
        return self._loop.snapshot()

    def step(self, batch: FinishedBatch, keep_in_force: float, target_seconds: float) -> KeepDecision | None:
        """Take in a finished batch; None while it tells nothing: no tuples, or no batch before it in this run.

        A run's first batch is slow (class loading, compilation), and no batch before it tells the rate.
        """
        last, self._last = self._last, batch
        if batch.offered <= 0 or last is None or batch.started_seconds <= last.started_seconds:
            return None
        gap = batch.started_seconds - last.started_seconds
        left, left_before = batch.backlog or 0, last.backlog or 0
        rate = self._rate(max(0, batch.offered + left - left_before), gap)
        # The query waited for its trigger or for data: batches begin at that pace, however short they are.
        pace = gap if gap > IDLE_FACTOR * last.seconds else 0.0
        latency = _latency(batch, gap, rate)
        offered = rate * max(batch.seconds, pace)
        seen = Observation(
            time_seconds=batch.started_seconds + batch.seconds,
            waiting=offered,
            latency_seconds=latency,
            latency_width_seconds=gap,
            kept=float(batch.kept),
            batch_seconds=batch.seconds,
            offered=float(batch.offered),
            target_seconds=target_seconds,
        )
        # With what this batch tells: in the first ones of a fresh process costs change by half from one to the next.
        forecast = self._loop.forecast(after=seen)
        running = forecast.seconds(offered, keep_in_force * offered) if forecast else batch.seconds
        # A batch that left something in the source took all that the source's limit lets it; so will the next.
        waiting = float(batch.offered) if left else rate * max(running, pace)
        decision = self._loop.step(replace(seen, waiting=waiting))
        budget = self._budget(decision, waiting) if pace == 0.0 and not left else None
        needed = forecast.capacity_needed(rate, target_seconds / BATCH_SHARE) if forecast else None
        expected = forecast.seconds(waiting, decision.admit) if forecast else batch.seconds
        return KeepDecision(decision.keep(waiting), decision, rate, latency, expected, budget, needed)

    def _rate(self, offered: int, gap: float) -> float:
        own, mean = offered / gap, _rate(self._arrivals)
        if not mean / RATE_STEP <= own <= mean * RATE_STEP:
            self._arrivals.clear()
        self._arrivals.append((offered, gap))
        return _rate(self._arrivals)

    def _budget(self, decision: Decision, waiting: float) -> float | None:
        """Tuples for the batch after the running one, which is offered what arrives from now until it begins.

        Where all is kept the work that fits still bounds it, if that is known: the batch in which a burst begins is
        long, and the next one is cut before anything of that was reported.
        """
        if decision.keep(waiting) < 1.0:
            return decision.keep(waiting) * waiting
        forecast = self._loop.forecast()
        return forecast.fits if forecast else None


def _rate(arrivals: Sequence[tuple[int, float]]) -> float:
    """Tuples per second over some batches, 0 without any."""
    return sum(offered for offered, _ in arrivals) / sum(seconds for _, seconds in arrivals) if arrivals else 0.0


def _latency(batch: FinishedBatch, gap: float, rate: float) -> float:
    """Mean latency of the batch's results: from the arrivals, or else the time to arrive and the batch itself.

    Where the source is first in, first out, what the batch left behind came after its own tuples.
    """
    if batch.arrival_seconds is not None:
        return batch.started_seconds + batch.seconds - batch.arrival_seconds
    if batch.backlog and rate > 0.0:
        return (batch.backlog + batch.offered / 2) / rate + batch.seconds
    return gap / 2 + batch.seconds
