"""Who decides about queues: control with a buffer (CWB), and the baselines without one (COB, Aurora).

A manager has a policy (scheduler, adaptor, cleaner) for the next cycle, a budget of CPU-seconds for it and a limit for
every queue; `control` changes them by what a finished cycle showed. A cycle is a micro-batch on Spark and the paper's
CPU cycle in the simulation: the `Engine` knows the difference, the manager does not.

`decide` settles one micro-batch for all queues. It changes nothing, so its answer may be thrown away: adaptors' states
are handed back with it, and belong to the batch that is cut by it.

Zhou et al., Buffer-preposed QoS Adaptation Framework, sections 3 and 4.

How long each queue may grow: memory shared out by arrival rate, cost and priority (section 4.1, point 1).

The paper asks for a longer queue at a higher arrival rate, a lower cost and a higher priority, without a formula.
Here a queue's share of the `total` tuples is

    weight = rate * 2**priority / cost        limit = total * weight / sum of weights

Shares are whole tuples and add up to the total exactly. They are dealt out anew only on a *remarkable* change: a
stream that joins or leaves, or a weight that changed by more than `factor` since the last time; small swings are the
adaptor's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodway.buffering.adaptors import Adaptor, QueueSample, Shedding, adaptor
from floodway.buffering.cursors import BatchDecision, BatchPolicy, QueueView, schedule_batch
from floodway.buffering.engines import Engine
from floodway.buffering.options import BufferOptions
from floodway.buffering.schedulers import scheduler
from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import LEAST_SECONDS, Controller, Observation, State
from floodway.control.loop import Loop
from floodway.control.pi import PiConfig, PiController
from floodway.control.tu import TuConfig, TuController
from floodway.errors import InputError

REMARKABLE_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What one queue asks for: tuples/s that arrive, CPU-seconds per tuple, priority."""

    rate: float
    cost_seconds: float
    priority: int = 0

    def weight(self) -> float:
        """rate * 2**priority / cost; a queue with no measured cost counts as one second a tuple."""
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise InputError(f"an arrival rate of {self.rate} tuples/s", hint="Give a finite rate of at least 0")
        if not (math.isfinite(self.cost_seconds) and self.cost_seconds >= 0):
            raise InputError(f"a tuple cost of {self.cost_seconds} s", hint="Give a finite cost of at least 0")
        return self.rate * 2.0**self.priority / (self.cost_seconds or 1.0)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Limits in force, with the weights they were dealt out for."""

    limits: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


def allocate(total: int, demands: Mapping[str, Demand], *, floor: int = 1) -> Allocation:
    """Deal out `total` tuples of memory afresh; every queue gets `floor` before the rest is shared by weight.

    >>> allocate(150, {"fast": Demand(200, 0.01), "slow": Demand(100, 0.01)}, floor=0).limits
    {'fast': 100, 'slow': 50}
    """
    if floor < 0 or total < floor * len(demands):
        raise InputError(
            f"{total} tuples of memory cannot give {len(demands)} queues {floor} each",
            hint="Raise the total or lower the floor",
        )
    weights = {name: demand.weight() for name, demand in demands.items()}
    mass = sum(weights.values())
    spare = total - floor * len(demands)
    shares = {name: spare * (weight / mass if mass > 0 else 1 / len(weights)) for name, weight in weights.items()}
    limits = {name: floor + int(share) for name, share in shares.items()}
    # Largest remainder: whole tuples that add up to the total, ties in the order given.
    by_remainder = sorted(shares, key=lambda name: int(shares[name]) - shares[name])
    for name in by_remainder[: total - sum(limits.values()) if limits else 0]:
        limits[name] += 1
    return Allocation(limits, weights)


def reallocate(
    current: Allocation,
    total: int,
    demands: Mapping[str, Demand],
    *,
    factor: float = REMARKABLE_FACTOR,
    floor: int = 1,
) -> Allocation:
    """The current allocation, or a new one if something remarkable happened since it was made."""
    if factor < 1:
        raise InputError(f"a remarkable change of factor {factor}", hint="Give a factor of at least 1")
    same_queues = current.weights.keys() == demands.keys()
    if same_queues and sum(current.limits.values()) == total:
        changes = (_change(current.weights[name], demand.weight()) for name, demand in demands.items())
        if all(change <= factor for change in changes):
            return current
    return allocate(total, demands, floor=floor)


def _change(before: float, after: float) -> float:
    low, high = sorted((before, after))
    if high == 0:
        return 1.0
    return math.inf if low == 0 else high / low


SHORTEST_LIMIT = 150
REMARKABLE_SHARE = 0.1
"""A limit that follows from measured costs changes when it is wrong by more than this share."""
LEAST_WORK_SECONDS = 1e-3
"""What a law always lets pass: too little to matter, and not nothing, which no law recovers from."""
UNBOUNDED = 1 << 50


@dataclass(frozen=True, slots=True)
class CycleSeen:
    """A finished cycle: the work (nominal CPU-seconds) that it kept, its length, and its share of late results.

    `offered` is the work that arrived during it, `waiting` what waits of the work that was judged, `arrived` what has
    come and was not judged yet.
    """

    now: float
    seconds: float
    kept: float
    offered: float
    waiting: float
    arrived: float
    miss_ratio: float | None


class BufferManager(ABC):
    """Decides for the queues that feed one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    @abstractmethod
    def policy(self) -> BatchPolicy:
        """Who orders, sheds and cleans in the next cycle."""

    @property
    @abstractmethod
    def budget_seconds(self) -> float | None:
        """CPU-seconds that may pass in the next cycle; None before the first one, where nothing holds it back."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """The laws' state in a few words."""

    @abstractmethod
    def control(self, seen: CycleSeen) -> None:
        """Let the laws see a finished cycle, after the engine has learned from it."""

    @abstractmethod
    def views(self, queues: Sequence[QueueView], capacity_seconds: float) -> list[QueueView]:
        """The queues with their limits and with measured instead of nominal costs.

        `capacity_seconds` is the CPU that there was in the cycle that `served` was counted in.
        """

    def decide(self, now: float, queues: Sequence[QueueView]) -> BatchDecision:
        """The next micro-batch; costs in `queues` are nominal."""
        budget = self.budget_seconds
        if budget is None:
            _, budget = self.engine.bounds(sum((q.waiting + q.arrived) * q.cost_seconds for q in queues))
        return schedule_batch(self.views(queues, budget), budget, now, self.policy)

    def measured(self, queue: QueueView) -> QueueView:
        """A queue with the cost that its tuples were seen to have."""
        return replace(queue, cost_seconds=queue.cost_seconds * self.engine.seconds_per_work)


class WithBuffer(BufferManager):
    """CWB: the scheduler serves up to the PI law's budget, the cleaner takes out the late, the adaptor thins the new.

    The PI law on the miss ratio lowers the budget where the most that the engine allows was too hopeful.
    """

    def __init__(self, options: BufferOptions, engine: Engine) -> None:
        super().__init__(engine)
        self._policy = BatchPolicy(scheduler(options.scheduler), adaptor(options.adaptor), options.cleaner)
        self._limit = options.limit
        self._allocation = Allocation()
        self._pi = Loop(PiController(PiConfig(options.permitted_miss_ratio, floor=LEAST_WORK_SECONDS)))
        self._budget: float | None = None

    @property
    def policy(self) -> BatchPolicy:
        return replace(self._policy, overhead_seconds=self.engine.overhead_seconds)

    @property
    def budget_seconds(self) -> float | None:
        return self._budget

    @property
    def reason(self) -> str:
        known = "no budget yet" if self._budget is None else f"budget {self._budget:.2f} s"
        return f"{known}, overhead {self.engine.overhead_seconds:.2f} s"

    def control(self, seen: CycleSeen) -> None:
        """Let the PI law choose among what is there to pass.

        What the adaptor drops counts as there: a queue that overflows for want of service must not look quiet.
        """
        least, most = self.engine.bounds(seen.waiting + seen.offered)
        admitted = self._pi.step(Observation(seen.now, waiting=most, miss_ratio=seen.miss_ratio)).admit
        self._budget = min(most, max(admitted, least))

    def views(self, queues: Sequence[QueueView], capacity_seconds: float) -> list[QueueView]:
        measured = [self.measured(queue) for queue in queues]
        spare = max(0.0, capacity_seconds - sum(view.served * view.cost_seconds for view in measured))
        limits = self._limits(measured)
        return [replace(_served(view, spare), limit=limits[view.name]) for view in measured]

    def _limits(self, views: Sequence[QueueView]) -> Mapping[str, int]:
        demands = {view.name: Demand(view.rate, view.cost_seconds, view.queue.priority) for view in views}
        total = self._limit
        if total is None:
            costs = [demand.cost_seconds for demand in demands.values()]
            total = max(SHORTEST_LIMIT, round(self.engine.longest * len(costs) / sum(costs)))
            known = sum(self._allocation.limits.values())
            total = known if known and abs(total - known) <= REMARKABLE_SHARE * known else total
        floor = min(1, total // max(1, len(views)))
        self._allocation = reallocate(self._allocation, total, demands, floor=floor)
        return self._allocation.limits


class WithoutBuffer(BufferManager):
    """COB: a law on the queue's delay sheds at the input, the same share of every stream; the rest waits its turn.

    First come, first served, as fast as the engine allows; nothing is taken back and nothing is cleaned. The PI law
    sets the delay target from the miss ratio. See experiments/NOTES.md.
    """

    def __init__(self, options: BufferOptions, engine: Engine) -> None:
        super().__init__(engine)
        self.target_seconds = engine.tightest / 2
        floor = 0.05 * engine.tightest
        outer = PiConfig(options.permitted_miss_ratio, floor=floor, nominal=self.target_seconds)
        self._outer = Loop(PiController(outer))
        self._law = options.manager
        self._state: Any = None
        self._last: float | None = None
        self.keep = 1.0

    @property
    def policy(self) -> BatchPolicy:
        return BatchPolicy(scheduler("fifo"), AtTheInput(self.keep), cleans=False)

    @property
    def budget_seconds(self) -> float | None:
        return None

    @property
    def reason(self) -> str:
        return f"keep {self.keep:.3f}, delay target {self.target_seconds:.2f} s"

    def control(self, seen: CycleSeen) -> None:
        """Set the delay target by the miss ratio, then the share to let in by the queue."""
        outer = Observation(seen.now, waiting=self.engine.longest, miss_ratio=seen.miss_ratio)
        self.target_seconds = self._outer.step(outer).admit
        period = seen.seconds if self._last is None else max(1e-3, seen.now - self._last)
        self._last = seen.now
        law = self._controller(period)
        # What was not judged yet will be let in at the share in force: it is part of the queue. And the law's cost of
        # a tuple is that at full load: a small batch is mostly overhead, which says nothing about a queue.
        queued = seen.waiting + self.keep * seen.arrived
        cost = self.engine.full_seconds_per_work
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
        if self._law == "aurora":
            return AuroraController(AuroraConfig(self.target_seconds, floor=LEAST_WORK_SECONDS))
        config = TuConfig(self.target_seconds, period_seconds=period_seconds, floor=LEAST_WORK_SECONDS)
        return TuController(config)

    def views(self, queues: Sequence[QueueView], capacity_seconds: float) -> list[QueueView]:
        return [replace(self.measured(queue), limit=UNBOUNDED) for queue in queues]


@dataclass(frozen=True, slots=True)
class AtTheInput(Adaptor[State]):
    """Keeps the share that a control law gave last, whatever waits."""

    keep: float
    name: str = "law"

    def initial(self) -> State:
        return State()

    def update(self, state: State, sample: QueueSample) -> tuple[State, Shedding]:
        return state, Shedding(self.keep)


def _served(view: QueueView, spare_seconds: float) -> QueueView:
    """What left an emptied queue is not what could have left it: after a lull an adaptor would shed the first burst."""
    if view.waiting > 0 or view.cost_seconds == 0.0:
        return view
    return replace(view, served=view.served + int(spare_seconds / view.cost_seconds))


def make_manager(options: BufferOptions, engine: Engine) -> BufferManager:
    """The manager that the options name."""
    return WithBuffer(options, engine) if options.manager == "cwb" else WithoutBuffer(options, engine)
