"""A controller and its current state: the only things in this room that change.

`Loop` steps a controller, `KeepLoop` goes from finished micro-batches to the keep of those to come, `Patience` holds
drops back for a while, `Efficiency` measures what another executor adds.

A decision takes effect one or two batches later, because an engine reports a batch while the next one runs. The work
that a decision chooses from is therefore a forecast: the offered rate times the expected length of the batch that is
running, during which the tuples of the next one arrive.

    N = r max(P, pace),   P = forecast(r max(P_last, pace), k r max(P_last, pace))

r is the offered rate, k the keep in force, and `pace` the time between the starts of two batches where the query waits
for its trigger or for data (0 otherwise). Where a source says what a batch left in it, because of a read limit, r
counts that too, and the next batch is offered as much as this one.

A load that rises is in the measured rate two batches late, and batches grow by its factor from one to the next. Time
tells earlier: the running batch, should it take e, has held (e - a) / w tuples, w = s + k c, of the P_last in which
they came. If they go on to come like that, the next one is offered

    N(e) = e (e - a) / (w P_last)

A keep follows a straight line (`BatchBudget`): that through N(P) = r P and N(2 P), of the slope g r from
P (1 - 1 / g) on, with g = 1 + 2 P / (r w P_last). A pause looks the same. So below `NEAR` of the capacity a long
batch is taken for a pause, and r e for what the next one is offered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, ClassVar, Self

from floodway.control.base import (
    BATCH_SHARE,
    Controller,
    Decision,
    Decorator,
    Forecast,
    Observation,
    Plain,
    WrappedState,
    clamp,
)
from floodway.control.cost_model import CostModel, learn
from floodway.errors import FloodwayError


@dataclass(frozen=True, slots=True)
class ForecasterState(CostModel):
    """The model, and the latest target in seconds; None while no observation has named one."""

    target_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Forecasting(Decorator[ForecasterState]):
    """Any controller, with forecasts: a cost model beside the law, fed with the same observations.

    The law decides as before. From the target that comes with an observation follows how much work fits: the work of
    a batch of P* = T / 1.5 that keeps all it is offered.

    >>> from floodway.control.registry import make_controller
    >>> controller = Forecasting(make_controller("aurora", target_seconds=3.0))
    >>> seen = Observation(0.0, waiting=900, kept=100, offered=100, batch_seconds=0.4, target_seconds=3.0)
    >>> state, decision = controller.update(controller.initial(), seen)
    >>> forecast = controller.forecast(state)
    >>> forecast is not None and round(forecast.seconds(offered=100, kept=100), 3)
    0.4
    """

    name: ClassVar[str] = "forecasting"
    signal: ClassVar[str] = "batch_seconds"
    prefix: ClassVar[str] = "forecast."

    def own_initial(self) -> ForecasterState:
        return ForecasterState()

    def update(
        self, state: WrappedState[ForecasterState], observation: Observation
    ) -> tuple[WrappedState[ForecasterState], Decision]:
        own = replace(state.own, target_seconds=observation.target_seconds or state.own.target_seconds)
        if observation.batch is not None:
            seconds, kept = observation.batch
            own = learn(own, kept, seconds, observation.offered)
        law, decision = self.law.update(state.law, observation)
        return WrappedState(law, own), decision

    def forecast(self, state: WrappedState[ForecasterState]) -> Forecast | None:
        own = state.own
        found = own.model_forecast()
        if found is None or own.target_seconds is None:
            return found
        fits = found.whole_work(own.target_seconds / BATCH_SHARE)
        return replace(found, fits=fits) if own.knows(fits) else found


class Loop:
    """Steps a controller. One that forecasts nothing is given a forecaster, so that its callers can plan ahead too."""

    def __init__(self, controller: Controller[Any], snapshot: Mapping[str, Plain] | None = None) -> None:
        self.controller = _forecasting(controller)
        self._state = self.controller.initial() if snapshot is None else self.controller.restore(snapshot)

    def step(self, observation: Observation) -> Decision:
        """Feed one observation and remember the next state."""
        self._state, decision = self.controller.update(self._state, observation)
        return decision

    def forecast(self, after: Observation | None = None) -> Forecast | None:
        """What is expected of the next batch; None before the first that was measured.

        `after` is a measurement that is to count and that no step has taken in yet.
        """
        state = self._state if after is None else self.controller.update(self._state, after)[0]
        return self.controller.forecast(state)

    def snapshot(self) -> dict[str, Plain]:
        """What a restarted process needs to resume: pass it to a new Loop."""
        return self.controller.snapshot(self._state)


def _forecasting(controller: Controller[Any]) -> Controller[Any]:
    """The controller, with a forecaster next to the law where the law does not forecast."""
    if isinstance(controller, Decorator):
        return replace(controller, law=_forecasting(controller.law))
    forecasts = type(controller).forecast is not Controller.forecast
    return controller if forecasts else Forecasting(controller)


IDLE_FACTOR = 1.2
"""A query whose batches begin at intervals longer than this many times a batch waits for its trigger or for data."""

RATE_BATCHES = 3
"""Batches over which the offered rate is taken: sources hand over whole blocks, so one batch is too few."""

RATE_STEP = 1.3
"""Factor by which a batch's own rate must differ from the mean to be a step in load: the mean then begins anew."""

NEAR = 0.8
"""Share of the capacity above which a batch that runs long is taken for a load that rises."""

LOOKED = 8
"""Batches with one number of executors."""

LEAST_EFFICIENCY, MOST_EFFICIENCY = 0.1, 1.0


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
class BatchBudget:
    """Tuples for the batch after the running one, and what it is offered if that one takes e seconds.

    N(e) = surge rate (e - delay_seconds)
    """

    tuples: float
    surge: float = 1.0
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KeepDecision:
    """The share to keep of the batches to come, with the figures that it follows from.

    `offered_rate` is in tuples per second, `batch_seconds` how long a batch that keeps this share is expected to take.
    `budget` is None where the keep is not to follow the length of the batch that is running. `capacity_needed` is how
    many times the present capacity would keep everything at the target; None while costs are not known, or where no
    capacity would. `held_seconds` is how long an overload has lasted for which nothing is dropped yet (`Patience`).
    """

    keep: float
    control: Decision
    offered_rate: float
    latency_seconds: float
    batch_seconds: float
    budget: BatchBudget | None = None
    capacity_needed: float | None = None
    held_seconds: float | None = None

    @property
    def capacity(self) -> float | None:
        """Tuples per second of which everything could be kept at the target; None where that is not known."""
        return None if not self.capacity_needed else self.offered_rate / self.capacity_needed


class KeepLoop:
    """The controller of one run of one query, and what it remembers of the last batches."""

    def __init__(self, controller: Controller[Any], snapshot: Mapping[str, Plain] | None = None) -> None:
        self._loop = Loop(controller, snapshot)
        self._last: FinishedBatch | None = None
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=RATE_BATCHES)
        """Tuples offered and seconds in which they came, of the last batches."""

    @classmethod
    def resumed(cls, controller: Controller[Any], snapshot: Mapping[str, Plain] | None) -> Self:
        """As the last run left it, or from the start where its snapshot is another controller's."""
        try:
            return cls(controller, snapshot or None)
        except FloodwayError:
            return cls(controller)

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
        needed = forecast.capacity_needed(rate, target_seconds / BATCH_SHARE) if forecast else None
        tuples = self._budget(decision, waiting) if pace == 0.0 and not left else None
        budget = None if tuples is None else BatchBudget(tuples)
        if budget is not None and forecast is not None and (needed is None or needed > NEAR):
            budget = _surging(budget, rate, running, batch.seconds * forecast.seconds_per_offered(keep_in_force))
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


def _surging(budget: BatchBudget, rate: float, running: float, seconds: float) -> BatchBudget:
    """For a load that may rise; `seconds` is w P_last.

    >>> _surging(BatchBudget(300.0), rate=100.0, running=2.0, seconds=0.02)
    BatchBudget(tuples=300.0, surge=3.0, delay_seconds=1.3333333333333335)
    """
    if rate * seconds <= 0.0:
        return budget
    surge = 1.0 + 2.0 * running / (rate * seconds)
    return replace(budget, surge=surge, delay_seconds=running * (1.0 - 1.0 / surge))


def _latency(batch: FinishedBatch, gap: float, rate: float) -> float:
    """Mean latency of the batch's results: from the arrivals, or else the time to arrive and the batch itself.

    Where the source is first in, first out, what the batch left behind came after its own tuples.
    """
    if batch.arrival_seconds is not None:
        return batch.started_seconds + batch.seconds - batch.arrival_seconds
    if batch.backlog and rate > 0.0:
        return (batch.backlog + batch.offered / 2) / rate + batch.seconds
    return gap / 2 + batch.seconds


@dataclass
class Patience:
    """Holds drops back for `seconds` of overload; `since_seconds` is when the present one began, None without one.

    An autoscaler needs a minute or two to add machines, a partner some time to take work over. Until then the source
    holds what waits, and results are late. A clock that is set back makes an overload no younger.

    >>> patience = Patience(90.0)
    >>> [patience.held(now, overloaded=True) for now in (10.0, 99.0, 100.0)]
    [0.0, 89.0, None]
    """

    seconds: float
    since_seconds: float | None = None
    last_seconds: float = 0.0
    dropping: bool = False

    def held(self, now_seconds: float, *, overloaded: bool, asking: bool = False) -> float | None:
        """How long the overload has lasted for which nothing is to be dropped yet; None if there is none, or no longer.

        As long as somebody is asked to take work over (`asking`) nothing is dropped. Once dropping has begun it goes on
        through later questions: their answers are not to be waited for again.
        """
        if not overloaded:
            self.since_seconds, self.dropping = None, False
            return None
        if self.since_seconds is None:
            self.since_seconds = now_seconds
        elif now_seconds < self.last_seconds:
            self.since_seconds -= self.last_seconds - now_seconds
        self.last_seconds = now_seconds
        lasted = now_seconds - self.since_seconds
        self.dropping = self.dropping or not (asking or lasted < self.seconds)
        return None if self.dropping else lasted

    def hold(self, decided: KeepDecision, now_seconds: float) -> KeepDecision:
        """The decision, or while the overload is young one that keeps everything.

        A budget bounds also a batch that is to keep all, so it waits with the drops.
        """
        held = self.held(now_seconds, overloaded=decided.keep < 1.0)
        if held is not None:
            return replace(decided, keep=1.0, budget=None, held_seconds=held)
        return decided if decided.keep < 1.0 else replace(decided, budget=None)


class Efficiency:
    """What another executor adds, measured when their number changes; `measured` is None until then.

    With n executors a job has the capacity C, in tuples per second or anything in proportion to that. When there are n'
    of them and the capacity is C', each of those that came does e of what one did before, on the mean:

        e = (C' / C - 1) / (n' / n - 1)        within [0.1, 1]

    Capacities are estimates that follow a change within some batches, and a change is noticed late. So both are medians
    of batches at some distance from it: C of the older half of the last `LOOKED` before it, C' of the newer half of the
    first `LOOKED` after it. A number that did not stay for so long says nothing.

    >>> efficiency = Efficiency()
    >>> for executors, capacity in [(2, 1000.0)] * 8 + [(3, 1400.0)] * 8:
    ...     efficiency.take(executors, capacity)
    >>> round(efficiency.measured, 2)
    0.8
    """

    def __init__(self, measured: float | None = None) -> None:
        self.measured = measured
        self._executors = 0
        self._capacities: deque[float] = deque(maxlen=LOOKED)
        self._before: tuple[int, float] | None = None

    def take(self, executors: int | None, capacity: float | None) -> None:
        """Take in a batch; it tells nothing where either is not known."""
        if not executors or not capacity:
            return
        if executors != self._executors:
            if len(self._capacities) == LOOKED:
                self._before = self._executors, median(list(self._capacities)[: LOOKED // 2])
            self._executors = executors
            self._capacities.clear()
        self._capacities.append(capacity)
        if self._before is not None and self._before[0] != executors and len(self._capacities) == LOOKED:
            number, former = self._before
            gained = median(list(self._capacities)[LOOKED // 2 :]) / former - 1.0
            self.measured = clamp(gained / (executors / number - 1.0), LEAST_EFFICIENCY, MOST_EFFICIENCY)
            self._before = None
