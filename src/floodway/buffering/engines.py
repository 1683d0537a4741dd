"""The processor behind a buffer, as its manager sees it: what work takes, and how much of it may pass.

*Work* is nominal CPU-seconds: tuples times the cost that the network file or a calibration gives them. An engine
learns how many seconds that work takes in fact. Two kinds of processor exist:

- `MicroBatches` (Spark): all tuples of a batch end together, and a batch takes an overhead whatever it holds;
- `TupleByTuple` (the buffer-preposed paper's, which the simulation has): tuples end one after the other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

from floodway.buffering.cleaner import CostEstimate
from floodway.control.cost_model import CostModel, learn

FIRST_OVERHEAD_SECONDS = 0.3
MARGIN = 0.9
"""Share of half the tightest deadline that a batch may take: what is estimated may be wrong."""
LEAST_SHARE = 0.25
NO_DEADLINE_SECONDS = 60.0
"""What stands for the deadline of those that have none, where a length or a limit must come from one."""


class Engine(ABC):
    """`deadlines` are the relative ones (seconds) of the queues that feed it; infinite ones are ignored."""

    def __init__(self, deadlines: Iterable[float]) -> None:
        self.deadlines = sorted({seconds for seconds in deadlines if math.isfinite(seconds)}) or [math.inf]

    @abstractmethod
    def learn(self, work: float, seconds: float) -> None:
        """This much work took so many seconds."""

    @property
    @abstractmethod
    def seconds_per_work(self) -> float:
        """What turns nominal CPU into seconds."""

    @property
    def full_seconds_per_work(self) -> float:
        """The same at full load, its share of any overhead included."""
        return self.seconds_per_work

    @property
    def overhead_seconds(self) -> float:
        """What a cycle takes with no tuple in it."""
        return 0.0

    @abstractmethod
    def bounds(self, present: float) -> tuple[float, float]:
        """The least and the most CPU-seconds that a cycle may pass where `present` work waits or has just come."""

    @property
    def tightest(self) -> float:
        """The tightest deadline within reach, seconds; bounded where there is none."""
        return min(self.deadlines[0], NO_DEADLINE_SECONDS)

    @property
    def longest(self) -> float:
        """The longest deadline, bounded where there is none."""
        return min(self.deadlines[-1], NO_DEADLINE_SECONDS)


class TupleByTuple(Engine):
    """Tuples end one after the other; their cost is smoothed exponentially (equation 10), and all may pass."""

    def __init__(self, deadlines: Iterable[float]) -> None:
        super().__init__(deadlines)
        self.estimate = CostEstimate(1.0)

    def learn(self, work: float, seconds: float) -> None:
        self.estimate = self.estimate.observe(seconds / work if work > 0 else None)

    @property
    def seconds_per_work(self) -> float:
        return self.estimate.seconds

    def bounds(self, present: float) -> tuple[float, float]:
        return 0.0, present * self.seconds_per_work


class MicroBatches(Engine):
    """How long a batch may be, from the deadlines and what batches were seen to take.

    All tuples of a micro-batch end together. A tuple that came just after a cut waits for one batch and takes part
    in the next, so a batch of length P meets a deadline T_d for all of them if 2 P <= T_d. Hence the most CPU is

        MARGIN * T_d / 2 - overhead,   T_d the tightest deadline that the engine's overhead leaves within reach

    >>> [round(seconds, 3) for seconds in MicroBatches([4.0]).bounds(present=100.0)]
    [0.375, 1.5]
    """

    def __init__(self, deadlines: Iterable[float]) -> None:
        super().__init__(deadlines)
        self.model = CostModel(overhead=FIRST_OVERHEAD_SECONDS)

    def learn(self, work: float, seconds: float) -> None:
        self.model = learn(self.model, work, seconds)

    @property
    def seconds_per_work(self) -> float:
        return 1.0 if self.model.cost is None else self.model.cost + self.model.offered_cost

    @property
    def full_seconds_per_work(self) -> float:
        return self.seconds_per_work * (1 + self.model.overhead / self.bounds(0.0)[1])

    @property
    def overhead_seconds(self) -> float:
        return self.model.overhead

    def bounds(self, present: float) -> tuple[float, float]:
        length = MARGIN * self.tightest / 2
        most = max(length - self.model.overhead, LEAST_SHARE * length)
        # Below the floor a batch would be all overhead: a budget of nothing would miss every deadline.
        return LEAST_SHARE * most, most

    @property
    def tightest(self) -> float:
        """The tightest deadline within reach, the longest one if none is."""
        least = self.model.overhead / (1 - LEAST_SHARE)
        reachable = [seconds for seconds in self.deadlines if MARGIN * seconds / 2 > least]
        return min((reachable or self.deadlines[-1:])[0], NO_DEADLINE_SECONDS)
