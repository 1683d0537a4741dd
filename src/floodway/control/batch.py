"""Latency control for micro-batches: plan the batch that meets the target, then trim what is left.

The mean latency of batch i is half the batch before it (tuples arrive evenly while that one runs), plus its own
duration, plus what neither explains (polling, commit):

    l_i = P_{i-1} / 2 + P_i + b,     P = a + s N + c n

so the target is met by batches of P* = h (T - b) / 1.5, that is n* = (P* - a - s N) / c of the N that are offered, or
(P* - a) / (c + s) where that many do not wait. a, s and c are learned (`cost_model`); b is learned from the measured
latencies; h is the latency controller's law h(t+1) = h(t) (1 + q (T - l) / T), applied only after two batches in a
row that shed and were planned for about P*, so it corrects what remains in the steady state and does
not fight the plan in a transient. A step in load changes N, not a, s, c, b or h: the very next batch is the right
size.

A target below 1.5 (a + s N) + b cannot be met by any amount of shedding. N arrives during a batch, so the least batch
is a / (1 - u), with u = s N_i / P_{i-1} the share of the time that is spent on what is offered. The decision then says
`unreachable`, with that floor, and plans for 1.1 times the floor instead: at the floor itself there would be no work
done at all. When that has lasted for eight batches, it plans for up to 1.5 times the floor, more the further the
target is out of reach: a target that is lost anyway is not worth most of the tuples.

A batch's figures arrive one or two batches late; each is to be reported once and in order, with `kept` and `offered`.
Feedback law and stability bound: Kalyvianaki et al., section 3. The model is ours: Spark's batches have an overhead
that the paper's engine had not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from floodway.control.base import (
    BATCH_SHARE,
    LEAST_SECONDS,
    LEAST_WORK,
    Controller,
    Decision,
    Forecast,
    GainWarning,
    Observation,
    bounded,
    clamp,
    optional_positive,
    positive,
    within,
)
from floodway.control.cost_model import CostModel, learn
from floodway.control.latency import choose_gain, law_factor, stability_bound

DELAY_BATCHES = 2.0
FLOOR_HEADROOM = (1.1, 1.5)
LOST_BATCHES = 8
OFFSET_GAIN = 0.5
OFFSET_STEP = 0.25
OVERHEAD_KNOWN = 0.5
"""Standard deviation of log a below which the overhead counts as measured."""

AS_PLANNED = 0.15
"""How far a batch's expected duration may be from P* and still be what was planned: plans take effect a batch late."""

LEAST_SHARE = 0.02
"""Share of a whole batch's work that is kept however much is offered: what waited long says little about what comes."""

OFFERED_GAIN = 0.5
LATEST = 1.5
"""Latency over target beyond which a batch counts as no later for h: a pause of a minute is not a reason to starve."""

MOST_OFFERED_SHARE = 0.9
CORRECTION_RANGE = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """Target in seconds. `nominal` is the n at which g = 1, and n's start: the nodes' capacity times P*.

    `overhead_seconds` is a first guess of a, `cost_guess` one of c; `gain` is q per batch, chosen from the delay if
    left out.
    """

    target_seconds: float
    gain: float | None = None
    nominal: float | None = None
    overhead_seconds: float = 0.0
    cost_guess: float | None = None
    floor: float = 1.0

    def __post_init__(self) -> None:
        positive("batch.target_seconds", self.target_seconds)
        positive("batch.floor", self.floor)
        optional_positive("batch.gain", self.gain)
        optional_positive("batch.nominal", self.nominal)
        optional_positive("batch.cost_guess", self.cost_guess)
        within("batch.overhead_seconds", self.overhead_seconds, 0.0, 1e6)


@dataclass(frozen=True, slots=True)
class BatchState(CostModel):
    """The model, n (None before the first measurement), the n at which g = 1, b, h, u and the last duration.

    `shedding` counts the measured batches in a row that shed down to P*, up to 2; `lost` those whose target was out
    of reach.
    """

    n: float | None = None
    nominal: float | None = None
    offset: float = 0.0
    correction: float = 1.0
    offered_share: float = 0.0
    last_seconds: float | None = None
    shedding: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class BatchLatencyController(Controller[BatchState]):
    """n = (P* - a - s N) / c, the work for the next micro-batch.

    >>> controller = BatchLatencyController(BatchConfig(target_seconds=1.5, overhead_seconds=0.2))
    >>> seen = Observation(0.0, waiting=900, kept=100, offered=100, batch_seconds=0.4, latency_seconds=0.6)
    >>> round(controller.update(controller.initial(), seen)[1].admit)
    365
    """

    config: BatchConfig
    name: ClassVar[str] = "batch"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> BatchState:
        nominal = self.config.nominal
        return BatchState(overhead=self.config.overhead_seconds, n=nominal, nominal=nominal)

    @property
    def warnings(self) -> tuple[GainWarning, ...]:
        """One warning when the given gain breaks the stability bound for a delay of two batches."""
        gain, bound = self.config.gain, stability_bound(1.0, 1.0, DELAY_BATCHES)
        if gain is None or gain < bound:
            return ()
        message = (
            f"batch.gain {gain:g} is not below the stability bound {bound:.3f} for a delay of two batches: "
            "latency may oscillate. Leave batch.gain out to have it chosen."
        )
        return (GainWarning("batch.gain", gain, bound, message),)

    def update(self, state: BatchState, observation: Observation) -> tuple[BatchState, Decision]:
        target = observation.target_seconds or self.config.target_seconds
        seconds, kept = observation.batch_seconds, observation.kept
        if seconds is None or max(kept, observation.offered or 0.0) < LEAST_WORK or seconds < LEAST_SECONDS:
            return self._decide(state, observation.waiting, target, "hold: no measurement")
        state = learn(state, kept, seconds, observation.offered, self.config.cost_guess)
        planned = self._period(state, target)
        if observation.offered is not None:
            arriving = state.offered_cost * observation.offered / max(state.last_seconds or planned, planned)
            share = state.offered_share + OFFERED_GAIN * (arriving - state.offered_share)
            state = replace(state, offered_share=clamp(share, 0.0, MOST_OFFERED_SHARE))
        shed = observation.offered is None or kept < observation.offered
        expected = state.expected(kept, observation.offered) or 0.0
        shed = shed and abs(expected - planned) <= AS_PLANNED * planned
        state = replace(state, shedding=min(state.shedding + 1, 2) if shed else 0)
        if observation.latency_seconds is not None:
            state = self._trim(state, observation.latency_seconds, seconds, target)
        state = replace(state, last_seconds=seconds)
        return self._decide(self._plan(state, observation.waiting, target), observation.waiting, target, "plan")

    def forecast(self, state: BatchState) -> Forecast | None:
        return state.model_forecast(state.n if state.n is not None and state.knows(state.n) else None)

    def _trim(self, state: BatchState, latency: float, seconds: float, target: float) -> BatchState:
        """Learn b from this batch's latency and, in the steady state of shedding, h."""
        if state.last_seconds is not None and state.surprise == 0:
            unexplained = latency - state.last_seconds / 2.0 - seconds - state.offset
            step = clamp(unexplained, -OFFSET_STEP * target, OFFSET_STEP * target)
            # b stays below half the target: a backlog's age must not be taken for a property of the engine.
            offset = clamp(state.offset + OFFSET_GAIN * step, -target, 0.5 * target)
            state = replace(state, offset=offset)
        if state.shedding < 2 or target < self._floor_seconds(state):
            return state
        gain = self.config.gain or choose_gain(1.0, 1.0, DELAY_BATCHES) / 4.0
        factor = law_factor(gain, target, min(latency, LATEST * target))
        return replace(state, correction=clamp(state.correction * factor, *CORRECTION_RANGE))

    def _plan(self, state: BatchState, waiting: float, target: float) -> BatchState:
        lost = target < self._floor_seconds(state)
        state = replace(state, lost=min(state.lost + 1, LOST_BATCHES) if lost else 0)
        found = state.model_forecast()
        if found is None:
            return state
        period = self._period(state, target)
        whole = found.whole_work(period)
        n = max(min(whole, found.work(period, waiting)), LEAST_SHARE * whole, self.config.floor)
        return replace(state, n=n, nominal=state.nominal or n)

    def _period(self, state: BatchState, target: float) -> float:
        """P*, for the target or, where that is out of reach, for somewhat more than the floor."""
        floor = self._floor_seconds(state)
        least, most = FLOOR_HEADROOM
        headroom = clamp(least * floor / target, least, most) if state.lost == LOST_BATCHES else least
        return max(state.correction * (max(target, headroom * floor) - state.offset) / BATCH_SHARE, LEAST_SECONDS)

    def _floor_seconds(self, state: BatchState) -> float:
        """1.5 a / (1 - u) + b, or 0 while the overhead is not known."""
        if state.cost is None or state.var_a > OVERHEAD_KNOWN**2:
            return 0.0
        return max(0.0, BATCH_SHARE * state.overhead / (1.0 - state.offered_share) + state.offset)

    def _decide(self, state: BatchState, waiting: float, target: float, reason: str) -> tuple[BatchState, Decision]:
        if state.n is None:
            return state, Decision(waiting, 1.0, reason)
        floor_seconds = self._floor_seconds(state) or None
        unreachable = floor_seconds is not None and target < floor_seconds
        if unreachable:
            prefix = "" if reason == "plan" else f"{reason}; "
            reason = f"{prefix}unreachable: target {target:g} s is below the floor of {floor_seconds:.3f} s"
        elif reason == "plan":
            verb = "shed" if waiting > state.n else "admit all"
            reason = (
                f"{verb}: overhead {state.overhead:.3f} s, per unit of work {state.offered_cost:.3g} s offered, "
                f"{state.cost:.3g} s kept"
            )
        scale = state.n / state.nominal if state.nominal else 1.0
        admit = bounded(state.n, self.config.floor, waiting)
        return state, Decision(admit, scale, reason, unreachable, floor_seconds)
