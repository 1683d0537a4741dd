"""Latency control for micro-batches: plan the batch that meets the target, then trim what is left.

The mean latency of batch i is half the batch before it (tuples arrive evenly while that one runs), plus its own
duration, plus what neither explains (polling, commit):

    l_i = P_{i-1} / 2 + P_i + b,     P = a + c n

so the target is met by batches of P* = (T - b) / 1.5, that is n* = h (P* - a) / c. a and c are learned
(`batch_model`); b is learned from the measured latencies; h is the latency controller's law h(t+1) = h(t) (1 + q (T -
l) / T), applied only after two batches in a row that shed down to n, and no surprise, so it corrects what remains in
the steady state and does not fight the plan in a transient: a batch that was cut before its load was known says
nothing about n. A step in load changes N, not a, c, b or h: the very next batch is the right size.

A target below 1.5 a + b cannot be met by any amount of shedding. The decision then says `unreachable`, with that
floor, and plans for 1.1 times the floor instead: at the floor itself there would be no work done at all. When that
has lasted for eight batches, it plans for up to 1.5 times the floor, more the further the target is out of reach: a
target that is lost anyway is not worth most of the tuples.

A batch's figures arrive one or two batches late; each is to be reported once and in order, with `kept` and `offered`.
Feedback law and stability bound: Kalyvianaki et al., section 3. The model is ours: Spark's batches have an overhead
that the paper's engine had not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    GainWarning,
    Observation,
    bounded,
    clamp,
    optional_positive,
    positive,
    within,
)
from floodway.control.batch_model import LEAST_VARIATION, BatchModel, learn
from floodway.control.latency import choose_gain, law_factor, stability_bound

BATCH_SHARE = 1.5
"""Mean latency over batch duration in a steady state: half a batch of waiting and one of processing."""

DELAY_BATCHES = 2.0
FLOOR_HEADROOM = (1.1, 1.5)
LOST_BATCHES = 8
OFFSET_GAIN = 0.5
OFFSET_STEP = 0.25
KNOWN = 0.5
"""Trust in the slope from which on the overhead counts as measured."""

OVERHEAD_ONLY = 0.25
"""Share of a batch that its work explains, at the guessed cost, below which the batch is nearly all overhead."""

AS_PLANNED = 0.25
"""How far a batch's work may be from n and still be what was planned: plans change, and take effect a batch late."""

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
class BatchState(BatchModel):
    """The model, n (None before the first measurement), the n at which g = 1, b, h and the last duration.

    `shedding` counts the measured batches in a row that shed down to n, up to 2; `lost` those whose target was out of
    reach.
    """

    n: float | None = None
    nominal: float | None = None
    offset: float = 0.0
    correction: float = 1.0
    last_seconds: float | None = None
    shedding: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class BatchLatencyController(Controller[BatchState]):
    """n = h (P* - a) / c, the work for the next micro-batch.

    >>> controller = BatchLatencyController(BatchConfig(target_seconds=1.5, overhead_seconds=0.2))
    >>> seen = Observation(0.0, waiting=900, kept=100, offered=100, batch_seconds=0.4, latency_seconds=0.6)
    >>> round(controller.update(controller.initial(), seen)[1].admit)
    400
    """

    config: BatchConfig
    name: ClassVar[str] = "batch"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> BatchState:
        nominal = self.config.nominal
        overhead = self.config.overhead_seconds
        return BatchState(overhead=overhead, trust=KNOWN if overhead > 0.0 else 0.0, n=nominal, nominal=nominal)

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
        if observation.batch is None:
            return self._decide(state, observation.waiting, target, "hold: no measurement")
        seconds, kept = observation.batch
        planned = state.n
        state = self._guessed(learn(state, kept, seconds))
        offered = observation.offered
        # Without the offered work, less kept than n says that the batch was limited by what waited, not by n.
        shed = kept < offered if offered is not None else planned is not None and kept >= planned
        shed = shed and planned is not None and abs(kept - planned) <= AS_PLANNED * planned
        state = replace(state, shedding=min(state.shedding + 1, 2) if shed else 0)
        if observation.latency_seconds is not None and state.surprise == 0:
            state = self._trim(state, observation.latency_seconds, seconds, target)
        state = replace(state, last_seconds=seconds)
        return self._decide(self._plan(state, target), observation.waiting, target, "plan")

    def _guessed(self, state: BatchState) -> BatchState:
        """Batches that are nearly all overhead, and all alike, say nothing about c: there the guess of it holds.

        Otherwise c = P/n would be taken to be huge, the next batches planned as small, and that would never end. The
        line still passes through the present operating point, and now a is known: a target below the floor is told,
        and batches grow until they show the true slope.
        """
        guess = self.config.cost_guess
        if guess is None or state.cost is None or state.variation >= LEAST_VARIATION:
            return state
        explained = guess * state.mean_work
        if explained >= OVERHEAD_ONLY * state.mean_seconds or state.cost <= guess:
            return state
        return replace(state, cost=guess, overhead=state.mean_seconds - explained, trust=max(state.trust, KNOWN))

    def _trim(self, state: BatchState, latency: float, seconds: float, target: float) -> BatchState:
        """Learn b from this batch's latency and, in the steady state of shedding, h."""
        if state.last_seconds is not None:
            unexplained = latency - state.last_seconds / 2.0 - seconds - state.offset
            step = clamp(unexplained, -OFFSET_STEP * target, OFFSET_STEP * target)
            # b stays below half the target: a backlog's age must not be taken for a property of the engine.
            offset = clamp(state.offset + OFFSET_GAIN * step, -target, 0.5 * target)
            state = replace(state, offset=offset)
        if state.shedding < 2 or target < self._floor_seconds(state):
            return state
        gain = self.config.gain or choose_gain(1.0, 1.0, DELAY_BATCHES) / 2.0
        factor = law_factor(gain, target, latency)
        return replace(state, correction=clamp(state.correction * factor, *CORRECTION_RANGE))

    def _plan(self, state: BatchState, target: float) -> BatchState:
        floor = self._floor_seconds(state)
        state = replace(state, lost=min(state.lost + 1, LOST_BATCHES) if target < floor else 0)
        least, most = FLOOR_HEADROOM
        headroom = clamp(least * floor / target, least, most) if state.lost == LOST_BATCHES else least
        reachable = max(target, headroom * floor)
        work = state.work((reachable - state.offset) / BATCH_SHARE)
        if work is None:
            return state
        n = max(state.correction * work, self.config.floor)
        return replace(state, n=n, nominal=state.nominal or n)

    def _floor_seconds(self, state: BatchState) -> float:
        """1.5 a + b, or 0 while n has varied too little to tell a from c."""
        return max(0.0, BATCH_SHARE * state.overhead + state.offset) if state.trust >= KNOWN else 0.0

    def _decide(self, state: BatchState, waiting: float, target: float, reason: str) -> tuple[BatchState, Decision]:
        if state.n is None:
            return state, Decision(waiting, 1.0, reason)
        floor_seconds = self._floor_seconds(state) if state.trust >= KNOWN else None
        unreachable = floor_seconds is not None and target < floor_seconds
        if unreachable:
            prefix = "" if reason == "plan" else f"{reason}; "
            reason = f"{prefix}unreachable: target {target:g} s is below the floor of {floor_seconds:.3f} s"
        elif reason == "plan":
            verb = "shed" if waiting > state.n else "admit all"
            reason = f"{verb}: overhead {state.overhead:.3f} s, {state.cost:.4g} s per unit of work"
        scale = state.n / state.nominal if state.nominal else 1.0
        admit = bounded(state.n, self.config.floor, waiting)
        return state, Decision(admit, scale, reason, unreachable, floor_seconds)
