"""Who decides about a fragment's queues: control with a buffer (CWB), and the baselines without one (COB, Aurora).

A manager is asked at every tick what the sources should do next, and told about every batch that has ended. All state
that belongs to a batch changes only when that batch was cut, so the answers in between may be thrown away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from floodway.agent.loop.buffer.options import BufferOptions
from floodway.agent.loop.buffer.queues import Queue
from floodway.buffering.adaptors import Adaptor, QueueSample, Shedding, adaptor
from floodway.buffering.cursors import BatchPolicy, QueueView, schedule_batch
from floodway.buffering.limits import Allocation, reallocate
from floodway.buffering.schedulers import scheduler
from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import LEAST_SECONDS, Controller, Loop, Observation, State
from floodway.control.batch_model import BatchModel, learn
from floodway.control.pi import PiConfig, PiController
from floodway.control.tu import TuConfig, TuController
from floodway.job.decision import QueueStep, StreamDecision

FIRST_OVERHEAD_SECONDS = 0.3
MARGIN = 0.9
"""Share of half the tightest deadline that a batch may take: what is estimated may be wrong."""
LEAST_SHARE = 0.25
SHORTEST_LIMIT = 150
NO_DEADLINE_SECONDS = 60.0
"""What stands for the deadline of those that have none, where a length or a limit must come from one."""
UNBOUNDED = 1 << 50


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """A finished batch: its length in seconds, the nominal work (CPU-seconds) that it kept, and its miss ratio.

    `offered` is the work that has arrived since the last batch was reported, `waiting` what waits in the queues of
    what was judged, `arrived` what has come since and was not.
    """

    now: float
    seconds: float
    kept: float
    offered: float
    waiting: float
    arrived: float
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


class _Pace:
    """How long a batch may be, from the deadlines and what batches were seen to take.

    All tuples of a micro-batch end together. A tuple that came just after a cut waits for one batch and takes part
    in the next, so a batch of length P meets a deadline T_d for all of them if 2 P <= T_d. Hence the most CPU is

        MARGIN * T_d / 2 - overhead,   T_d the tightest deadline that the engine's overhead leaves within reach
    """

    def __init__(self, queues: Sequence[Queue]) -> None:
        self.deadlines = sorted({q.kind.deadline_seconds for q in queues if q.kind.has_deadline}) or [math.inf]
        self.model = BatchModel(overhead=FIRST_OVERHEAD_SECONDS)

    @property
    def seconds_per_work(self) -> float:
        """What turns nominal CPU into the time that batches take."""
        return self.model.cost if self.model.cost is not None else 1.0

    @property
    def full_seconds_per_work(self) -> float:
        """The same in a full batch, its share of the overhead included."""
        return self.seconds_per_work * (1 + self.model.overhead / self.most_seconds)

    @property
    def tightest(self) -> float:
        """The tightest deadline within reach, the longest one if none is; bounded where there is none."""
        least = self.model.overhead / (1 - LEAST_SHARE)
        reachable = [seconds for seconds in self.deadlines if MARGIN * seconds / 2 > least]
        return min((reachable or self.deadlines[-1:])[0], NO_DEADLINE_SECONDS)

    @property
    def longest(self) -> float:
        """The longest deadline, bounded where there is none."""
        return min(self.deadlines[-1], NO_DEADLINE_SECONDS)

    @property
    def most_seconds(self) -> float:
        """The most CPU of a batch."""
        length = MARGIN * self.tightest / 2
        return max(length - self.model.overhead, LEAST_SHARE * length)


class WithBuffer:
    """CWB: the scheduler fills a batch of the PI law's budget, the cleaner jumps late heads, the adaptor thins the new.

    The PI law on the miss ratio lowers the budget where the longest one that the deadlines allow was too hopeful.
    """

    def __init__(self, options: BufferOptions, queues: Sequence[Queue]) -> None:
        self._policy = BatchPolicy(scheduler(options.scheduler), adaptor(options.adaptor), options.cleaner)
        self._limit = options.limit
        self._pace = _Pace(queues)
        self._allocation = Allocation()
        self.budget_seconds = self._pace.most_seconds
        self._pi = Loop(PiController(PiConfig(options.permitted_miss_ratio, floor=1e-3, nominal=self.budget_seconds)))

    def ended(self, seen: BatchSeen) -> None:
        """Learn overhead and cost, and let the PI law speak."""
        self._pace.model = learn(self._pace.model, seen.kept, seen.seconds)
        most = self._pace.most_seconds
        observation = Observation(seen.now, waiting=most, miss_ratio=seen.miss_ratio)
        # A floor below which a batch would be all overhead: a budget of nothing would miss every deadline.
        self.budget_seconds = min(most, max(self._pi.step(observation).admit, LEAST_SHARE * most))

    def choose(self, now: float, queues: Sequence[Queue]) -> Choice:
        """Run the policies over all queues together."""
        limits = self._limits(now, queues)
        policy = replace(self._policy, overhead_seconds=self._pace.model.overhead)
        views = [self._view(q, now, limits[q.name], self._spare(queues)) for q in queues]
        reason = (
            f"budget {self.budget_seconds:.2f} s, overhead {self._pace.model.overhead:.2f} s, "
            f"waiting {sum(view.waiting + view.arrived for view in views)}"
        )
        return _scheduled(queues, views, self.budget_seconds, now, policy, reason)

    def _spare(self, queues: Sequence[Queue]) -> float:
        """CPU that the last batch could have taken and had no tuples for, seconds."""
        taken = sum(q.served * q.work_seconds for q in queues) * self._pace.seconds_per_work
        return max(0.0, self.budget_seconds - taken)

    def _view(self, queue: Queue, now: float, limit: int, spare_seconds: float) -> QueueView:
        """The queue as the policies see it. What left an emptied queue is not what could have left it.

        The adaptor takes the tuples served last for the service there is; after a lull it would shed the first burst.
        """
        view = queue.view(now, limit=limit, seconds_per_work=self._pace.seconds_per_work)
        if view.waiting > 0 or view.cost_seconds == 0.0:
            return view
        return replace(view, served=view.served + int(spare_seconds / view.cost_seconds))

    def _limits(self, now: float, queues: Sequence[Queue]) -> Mapping[str, int]:
        demands = {q.name: q.demand(now, self._pace.seconds_per_work) for q in queues}
        total = self._limit
        if total is None:
            costs = [demand.cost_seconds for demand in demands.values()]
            total = max(SHORTEST_LIMIT, round(self._pace.longest * len(costs) / sum(costs)))
            # Costs are measured, so this total breathes; a remarkable change is one by more than a tenth.
            known = sum(self._allocation.limits.values())
            total = known if known and abs(total - known) <= 0.1 * known else total
        floor = min(1, total // max(1, len(queues)))
        self._allocation = reallocate(self._allocation, total, demands, floor=floor)
        return self._allocation.limits


@dataclass(frozen=True, slots=True)
class _AtTheInput(Adaptor[State]):
    """Keeps the share that a control law said last, whatever waits."""

    keep: float
    name: str = "law"

    def initial(self) -> State:
        return State()

    def update(self, state: State, sample: QueueSample) -> tuple[State, Shedding]:
        return state, Shedding(self.keep)


class WithoutBuffer:
    """COB: a law on the queue's delay sheds at the input, the same share of every stream; the rest waits its turn.

    First come, first served, in batches of the length that the deadlines allow, nothing is taken back and nothing is
    cleaned. The PI law sets the delay target from the miss ratio. See decisions 0044 and 0083.
    """

    def __init__(self, options: BufferOptions, queues: Sequence[Queue]) -> None:
        self._pace = _Pace(queues)
        self.target_seconds = self._pace.tightest / 2
        floor = 0.05 * self._pace.tightest
        outer = PiConfig(options.permitted_miss_ratio, floor=floor, nominal=self.target_seconds)
        self._outer = Loop(PiController(outer))
        self._law = options.manager
        self._state: Any = None
        self._ended_at: float | None = None
        self.keep = 1.0

    def ended(self, seen: BatchSeen) -> None:
        """Set the delay target by the miss ratio, then the share to let in by the queue."""
        self._pace.model = learn(self._pace.model, seen.kept, seen.seconds)
        outer = Observation(seen.now, waiting=self._pace.longest, miss_ratio=seen.miss_ratio)
        self.target_seconds = self._outer.step(outer).admit
        period = seen.seconds if self._ended_at is None else max(1e-3, seen.now - self._ended_at)
        self._ended_at = seen.now
        law = self._controller(period)
        # What has come since the cut is let in at the share in force: it is part of the queue. And the law's cost of
        # a tuple is that in a full batch: a small one is mostly overhead, which says nothing about a queue.
        queued = seen.waiting + self.keep * seen.arrived
        cost = self._pace.full_seconds_per_work
        observation = Observation(
            seen.now,
            waiting=seen.offered,
            latency_seconds=queued * cost,
            kept=seen.kept,
            batch_seconds=max(seen.kept * cost, LEAST_SECONDS),
            offered=seen.offered,
            queued=queued,
            target_seconds=self.target_seconds,
        )
        self._state, decision = law.update(law.initial() if self._state is None else self._state, observation)
        if seen.offered > 0:
            self.keep = decision.keep(seen.offered)

    def _controller(self, period_seconds: float) -> Controller[Any]:
        # A floor in seconds of work: too little to matter, and not nothing, which no law recovers from.
        if self._law == "aurora":
            return AuroraController(AuroraConfig(self.target_seconds, floor=1e-3))
        return TuController(TuConfig(self.target_seconds, period_seconds=period_seconds, floor=1e-3))

    def choose(self, now: float, queues: Sequence[Queue]) -> Choice:
        """First come, first served, thinned at the input."""
        policy = BatchPolicy(scheduler("fifo"), _AtTheInput(self.keep), cleans=False)
        views = [q.view(now, limit=UNBOUNDED, seconds_per_work=self._pace.seconds_per_work) for q in queues]
        reason = f"keep {self.keep:.3f}, delay target {self.target_seconds:.2f} s"
        return _scheduled(queues, views, self._pace.most_seconds, now, policy, reason)


def _scheduled(
    queues: Sequence[Queue],
    views: Sequence[QueueView],
    budget_seconds: float,
    now: float,
    policy: BatchPolicy,
    reason: str,
) -> Choice:
    """Decide over all queues together, and write it down in positions."""
    decided = schedule_batch(views, budget_seconds, now, policy)
    steps: dict[str, dict[int, QueueStep]] = {}
    takes: dict[str, float] = {}
    for queue, one in zip(queues, decided.queues, strict=True):
        passage = one.passage(queue.cursor, max(queue.end, queue.cursor.tail))
        step = QueueStep(passage.cleaned, passage.read_from, passage.end, tuple(passage.cursor.to_offset()))
        steps.setdefault(queue.location, {})[queue.partition] = step
        takes[queue.location] = takes.get(queue.location, 0.0) + one.take
    streams = {location: StreamDecision(buffer=by_partition) for location, by_partition in steps.items()}
    return Choice(streams, takes, {one.name: one.adaptor_state for one in decided.queues}, reason)


def make_manager(options: BufferOptions, queues: Sequence[Queue]) -> BufferManager:
    """The manager that the options name."""
    return WithBuffer(options, queues) if options.manager == "cwb" else WithoutBuffer(options, queues)
