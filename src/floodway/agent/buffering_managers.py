"""Who decides about a fragment's queues: control with a buffer (CWB), and the baselines without one (COB, Aurora).

A manager is asked at every tick what the sources should do next, and told about every batch that has ended. All state
that belongs to a batch changes only when that batch was cut, so the answers in between may be thrown away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from floodway.agent.buffering_options import BufferOptions
from floodway.agent.buffering_queues import Queue
from floodway.buffering.adaptors import adaptor
from floodway.buffering.cursors import BatchPolicy, schedule_batch
from floodway.buffering.limits import Allocation, reallocate
from floodway.buffering.schedulers import scheduler
from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import Controller, Loop, Observation
from floodway.control.batch_model import BatchModel, learn
from floodway.control.pi import PiConfig, PiController
from floodway.control.tu import TuConfig, TuController
from floodway.spark.decision import PPM, QueueStep, StreamDecision

FIRST_OVERHEAD_SECONDS = 0.3
MARGIN = 0.9
"""Share of half the tightest deadline that a batch may take: what is estimated may be wrong."""
LEAST_SHARE = 0.25
SHORTEST_LIMIT = 150
UNIFORM_SHARE = 0.75
"""Mean over largest latency of micro-batches in a steady state: 1.5 against 2 batch lengths."""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """A finished batch: its length, nominal work offered and kept (CPU-seconds), mean latency and miss ratio."""

    now: float
    seconds: float
    offered: float
    kept: float
    latency_seconds: float | None
    miss_ratio: float | None


@dataclass(frozen=True)
class Choice:
    """What the sources are told, how many tuples of each location the next batch takes, and the adaptors' states."""

    streams: Mapping[str, StreamDecision]
    takes: Mapping[str, float]
    states: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


class BufferManager(Protocol):
    """Decides for the queues of one fragment."""

    def choose(self, now: float, queues: Sequence[Queue]) -> Choice:
        """What to do next, given what waits now."""
        ...

    def ended(self, seen: BatchSeen) -> None:
        """Learn from a finished batch."""
        ...


class WithBuffer:
    """CWB: the scheduler fills a batch of the PI law's budget, the cleaner jumps late heads, the adaptor thins the new.

    All tuples of a micro-batch end together. A tuple that came just after a cut waits for one batch and takes part
    in the next, so a batch of length P meets a deadline T_d for all of them if 2 P <= T_d. Hence the budget is at most

        MARGIN * T_d / 2 - overhead,   T_d the tightest deadline that the engine's overhead leaves within reach

    and the PI law on the miss ratio lowers it where that was too hopeful.
    """

    def __init__(self, options: BufferOptions, queues: Sequence[Queue]) -> None:
        self._policy = BatchPolicy(scheduler(options.scheduler), adaptor(options.adaptor), options.cleaner)
        self._limit = options.limit
        self._deadlines = sorted({q.kind.deadline_seconds for q in queues if q.kind.has_deadline}) or [math.inf]
        self.model = BatchModel(overhead=FIRST_OVERHEAD_SECONDS)
        self._allocation = Allocation()
        self._pi = Loop(PiController(PiConfig(options.permitted_miss_ratio, floor=1e-3, nominal=self._most_seconds)))
        self.budget_seconds = self._most_seconds

    @property
    def _most_seconds(self) -> float:
        overhead = self.model.overhead
        reachable = [d for d in self._deadlines if MARGIN * d / 2 > overhead / (1 - LEAST_SHARE)] or self._deadlines[
            -1:
        ]
        tightest = min(reachable[0], 60.0)
        return max(MARGIN * tightest / 2 - overhead, LEAST_SHARE * MARGIN * tightest / 2)

    def ended(self, seen: BatchSeen) -> None:
        """Learn overhead and cost, and let the PI law speak."""
        self.model = learn(self.model, seen.kept, seen.seconds)
        most = self._most_seconds
        observation = Observation(seen.now, waiting=most, miss_ratio=seen.miss_ratio)
        # A floor below which a batch would be all overhead: a budget of nothing would miss every deadline.
        self.budget_seconds = min(most, max(self._pi.step(observation).admit, LEAST_SHARE * most))

    def choose(self, now: float, queues: Sequence[Queue]) -> Choice:
        """Run the policies over all queues together."""
        seconds_per_work = self.model.cost if self.model.cost is not None else 1.0
        limits = self._limits(now, queues, seconds_per_work)
        views = [q.view(now, limit=limits[q.name], seconds_per_work=seconds_per_work) for q in queues]
        policy = replace(self._policy, overhead_seconds=self.model.overhead)
        decided = schedule_batch(views, self.budget_seconds, now, policy)
        steps: dict[str, dict[int, QueueStep]] = {}
        takes: dict[str, float] = {}
        for queue, one in zip(queues, decided.queues, strict=True):
            passage = one.passage(queue.cursor, max(queue.end, queue.cursor.tail))
            step = QueueStep(passage.cleaned, passage.read_from, passage.end, tuple(passage.cursor.to_offset()))
            steps.setdefault(queue.location, {})[queue.partition] = step
            takes[queue.location] = takes.get(queue.location, 0.0) + one.take
        return Choice(
            {location: StreamDecision(buffer=by_partition) for location, by_partition in steps.items()},
            takes,
            {one.name: one.adaptor_state for one in decided.queues},
            f"budget {self.budget_seconds:.2f} s, overhead {self.model.overhead:.2f} s, "
            f"waiting {sum(view.waiting + view.arrived for view in views)}",
        )

    def _limits(self, now: float, queues: Sequence[Queue], seconds_per_work: float) -> Mapping[str, int]:
        demands = {q.name: q.demand(now, seconds_per_work) for q in queues}
        total = self._limit
        if total is None:
            costs = [d.cost_seconds for d in demands.values() if d.cost_seconds > 0]
            longest = min(self._deadlines[-1], 60.0)
            total = max(SHORTEST_LIMIT, round(longest * len(costs) / sum(costs)) if costs else 0)
            # Costs are measured, so this total breathes; a remarkable change is one by more than a tenth.
            known = sum(self._allocation.limits.values())
            total = known if known and abs(total - known) <= 0.1 * known else total
        floor = min(1, total // max(1, len(queues)))
        self._allocation = reallocate(self._allocation, total, demands, floor=floor)
        return self._allocation.limits


class WithoutBuffer:
    """COB: a law for the delay sheds at the input, uniformly; the PI law sets its target from the miss ratio.

    All that was let in goes into the next micro-batch, in order of arrival. See decisions 0044 and 0083.
    """

    def __init__(self, options: BufferOptions, queues: Sequence[Queue]) -> None:
        deadlines = sorted({q.kind.deadline_seconds for q in queues if q.kind.has_deadline}) or [math.inf]
        tightest, self._longest = (min(60.0, seconds) for seconds in (deadlines[0], deadlines[-1]))
        self.target_seconds = UNIFORM_SHARE * tightest
        outer = PiConfig(options.permitted_miss_ratio, floor=0.1 * tightest, nominal=self.target_seconds)
        self._outer = Loop(PiController(outer))
        self._law = options.manager
        self._state: Any = None
        self._ended_at: float | None = None
        self.keep = 1.0

    def ended(self, seen: BatchSeen) -> None:
        """Set the delay target by the miss ratio, then the share to let in by the delay."""
        outer = Observation(seen.now, waiting=self._longest, miss_ratio=seen.miss_ratio)
        self.target_seconds = self._outer.step(outer).admit
        period = seen.seconds if self._ended_at is None else max(1e-3, seen.now - self._ended_at)
        self._ended_at = seen.now
        law = self._controller(period)
        state = law.initial() if self._state is None else self._state
        observation = Observation(
            seen.now,
            waiting=seen.offered,
            latency_seconds=seen.latency_seconds,
            kept=seen.kept,
            batch_seconds=seen.seconds if seen.kept > 0 else None,
            offered=seen.offered,
            target_seconds=self.target_seconds,
        )
        self._state, decision = law.update(state, observation)
        if seen.offered > 0:
            self.keep = decision.keep(seen.offered)

    def _controller(self, period_seconds: float) -> Controller[Any]:
        # A floor in seconds of work: too little to matter, and not nothing, which no law recovers from.
        if self._law == "aurora":
            return AuroraController(AuroraConfig(self.target_seconds, floor=1e-3))
        return TuController(TuConfig(self.target_seconds, period_seconds=period_seconds, floor=1e-3))

    def choose(self, now: float, queues: Sequence[Queue]) -> Choice:
        """The same keep for all streams."""
        takes: dict[str, float] = {}
        for queue in queues:
            takes[queue.location] = takes.get(queue.location, 0.0) + self.keep * queue.waiting
        keep_ppm = max(0, min(PPM, round(self.keep * PPM)))
        return Choice(
            {queue.location: StreamDecision(keep_ppm) for queue in queues},
            takes,
            reason=f"keep {self.keep:.3f}, delay target {self.target_seconds:.2f} s",
        )


def make_manager(options: BufferOptions, queues: Sequence[Queue]) -> BufferManager:
    """The manager that the options name."""
    return WithBuffer(options, queues) if options.manager == "cwb" else WithoutBuffer(options, queues)
