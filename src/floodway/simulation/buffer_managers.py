"""The two systems that the paper compares: CWB, control with a buffer, and COB, control without one.

CWB joins a scheduler, an adaptor and the cleaner with the PI controller of the downstream part, which turns the
deadline miss ratio of the last CPU cycle into the number of tuples that may pass in the next. COB lets a control law
shed at the input; what it lets in waits, unbounded and in order of arrival, inside the query processor.
"""

from __future__ import annotations

from typing import Any

from floodway.buffering.adaptors import QueueSample, Shedding, adaptor
from floodway.buffering.schedulers import Scheduler, scheduler
from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import Controller, Loop, Observation
from floodway.control.pi import PiConfig, PiController
from floodway.control.tu import TuConfig, TuController
from floodway.errors import InputError
from floodway.simulation.buffer import BUFFER_CYCLE_SECONDS, CPU_CYCLE_SECONDS, Cycle

PAPER_LIMIT = 150
PERMITTED_MISS_RATIO = 0.01
FIRST_TARGET_SECONDS = 0.25
"""COB's delay target at the start: the paper's least deadline."""
LARGEST_TARGET_SECONDS = 2.0
SMALLEST_TARGET_SECONDS = 0.005


class WithBuffer:
    """CWB. One adaptor for the one queue limit L that all deadline classes share, as in the paper."""

    def __init__(
        self,
        *,
        scheduler_name: str = "edf",
        adaptor_name: str = "pid",
        limit: int = PAPER_LIMIT,
        cleans: bool = True,
        permitted_miss_ratio: float = PERMITTED_MISS_RATIO,
    ) -> None:
        self.scheduler: Scheduler = scheduler(scheduler_name)
        self.limit: int | None = limit
        self.cleans = cleans
        self._limit = limit
        self._adaptor = adaptor(adaptor_name)
        self._state: Any = self._adaptor.initial()
        self._pi = Loop(PiController(PiConfig(permitted_miss_ratio=permitted_miss_ratio)))

    def buffer_cycle(self, cycle: Cycle) -> Shedding:
        """The adaptor's word on the next buffer cycle."""
        counts = cycle.counts
        sample = QueueSample(cycle.waiting, self._limit, counts.offered, counts.processed)
        self._state, shedding = self._adaptor.update(self._state, sample)
        return shedding

    def cpu_cycle(self, cycle: Cycle) -> float | None:
        """C(k): the PI law chooses among what waits and what the adaptor let in during the last cycle.

        What overflowed counts as well: the law holds while less waits than it permits, and a queue that overflows for
        want of service must not look like a quiet one.
        """
        waiting = cycle.waiting + cycle.counts.offered - cycle.counts.shed
        decision = self._pi.step(_observe(cycle, waiting=waiting))
        return decision.admit if decision.admit < waiting else None


class WithoutBuffer:
    """COB, with Tu's law or the Aurora step at the input.

    Both laws steer a delay; the paper's claim is about an expected miss ratio. So the delay target is itself set by
    the PI law from the miss ratio, between 5 ms and the longest deadline (decision 0044).
    """

    def __init__(
        self,
        *,
        law: str = "tu",
        permitted_miss_ratio: float = PERMITTED_MISS_RATIO,
        every_buffer_cycle: bool = False,
    ) -> None:
        self.scheduler: Scheduler = scheduler("fifo")
        self.limit: int | None = None
        self.cleans = False
        self._keep = 1.0
        self._target = FIRST_TARGET_SECONDS
        self._every_buffer_cycle = every_buffer_cycle
        self._law = Loop(_law(law, BUFFER_CYCLE_SECONDS if every_buffer_cycle else CPU_CYCLE_SECONDS))
        config = PiConfig(
            permitted_miss_ratio=permitted_miss_ratio,
            floor=SMALLEST_TARGET_SECONDS,
            nominal=FIRST_TARGET_SECONDS,
        )
        self._outer = Loop(PiController(config))

    def buffer_cycle(self, cycle: Cycle) -> Shedding:
        """Keeps what the law said last; where it may speak every buffer cycle, it speaks now."""
        if self._every_buffer_cycle:
            self._control(cycle)
        return Shedding(self._keep)

    def cpu_cycle(self, cycle: Cycle) -> float | None:
        """Set the share to let in; the CPU takes whatever is there."""
        if not self._every_buffer_cycle:
            self._control(cycle)
        return None

    def _control(self, cycle: Cycle) -> None:
        self._target = self._outer.step(_observe(cycle, waiting=LARGEST_TARGET_SECONDS)).admit
        offered = cycle.counts.offered
        decision = self._law.step(_observe(cycle, waiting=offered, target_seconds=self._target))
        self._keep = decision.keep(offered)


def _law(name: str, period_seconds: float) -> Controller[Any]:
    if name == "tu":
        return TuController(TuConfig(FIRST_TARGET_SECONDS, period_seconds=period_seconds))
    if name == "aurora":
        return AuroraController(AuroraConfig(FIRST_TARGET_SECONDS))
    raise InputError(f"no law without a buffer is called {name!r}", hint="Choose 'tu' or 'aurora'")


def _observe(cycle: Cycle, *, waiting: float, target_seconds: float | None = None) -> Observation:
    counts = cycle.counts
    done = counts.processed
    return Observation(
        time_seconds=cycle.now,
        waiting=waiting,
        latency_seconds=counts.delay_seconds / done if done else None,
        kept=done,
        batch_seconds=counts.cost_seconds if done else None,
        offered=counts.offered,
        queued=cycle.waiting,
        miss_ratio=counts.miss_ratio if done else None,
        target_seconds=target_seconds,
    )
