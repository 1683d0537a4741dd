"""The buffer-preposed framework on a simulated clock, tuple by tuple and exact: buffer, scheduler, cleaner, one CPU.

A tuple that arrives is kept with the adaptor's share, put into the queue unless that is full, and served in the
scheduler's order when the CPU is free and the pace allows it. The manager is the one that runs on Spark
(`buffering/managers.py`); with `cob` or `aurora` the same machine is the system without a buffer.

Only the queue is walked in Python, a heap of at most L entries; all else is columns. 1000 s at 1000 tuples/s take a
few seconds on one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.buffering.adaptors import Overflow, Shedding
from floodway.buffering.cleaner import purged
from floodway.buffering.cursors import QueueView
from floodway.buffering.engines import TupleByTuple
from floodway.buffering.managers import UNBOUNDED, BufferManager, CycleSeen, make_manager
from floodway.buffering.options import BufferOptions
from floodway.buffering.queues import QueueClass
from floodway.buffering.schedulers import Scheduler
from floodway.simulation.arrivals import Tuples

BUFFER_CYCLE_SECONDS = 1.0
CPU_CYCLE_SECONDS = 5.0
TICK_SECONDS = 0.1
"""Occupancy is sampled every 0.1 s, as in the paper's Figure 5."""

Entry = tuple[int, float, int, int, float, float, float]
"""A waiting tuple: level, key, tie, sequence number; then t_g, T_d and true cost."""


@dataclass(slots=True)
class TupleCounts:
    """Where tuples went, in one cycle or all; times in seconds."""

    offered: int = 0
    shed: int = 0
    overflow: int = 0
    purged: int = 0
    processed: int = 0
    late: int = 0
    cost_seconds: float = 0.0
    delay_seconds: float = 0.0
    busy_seconds: float = 0.0

    def add(self, other: TupleCounts) -> None:
        """Add another cycle's counts to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def dropped(self) -> int:
        """All that was offered and not processed, but for what still waits."""
        return self.shed + self.overflow + self.purged

    @property
    def miss_ratio(self) -> float:
        """Late tuples among those processed."""
        return self.late / self.processed if self.processed else 0.0

    @property
    def miss_ratio_with_purged(self) -> float:
        """Late or purged tuples among those that entered the buffer and left it."""
        seen = self.processed + self.purged
        return (self.late + self.purged) / seen if seen else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run gave: totals, one entry a CPU cycle, and the queue's length at every tick."""

    seconds: float
    total: TupleCounts
    cycles: tuple[TupleCounts, ...]
    occupancy: NDArray[np.int64]
    waiting: int
    limit: int | None
    cycle_seconds: float = CPU_CYCLE_SECONDS

    @property
    def utilisation(self) -> float:
        """Share of the time that the CPU was busy."""
        return self.total.busy_seconds / self.seconds

    @property
    def drop_ratio(self) -> float:
        """Share of the offered tuples that were shed, overflowed or were purged."""
        return self.total.dropped / self.total.offered if self.total.offered else 0.0

    @property
    def on_time_ratio(self) -> float:
        """Share of the offered tuples that were processed within their deadline."""
        on_time = self.total.processed - self.total.late
        return on_time / self.total.offered if self.total.offered else 0.0


def simulate(
    tuples: Tuples,
    options: BufferOptions,
    rng: np.random.Generator,
    *,
    seconds: float,
    first_estimate_seconds: float,
    clean_at_dispatch: bool = True,
    control_seconds: float = CPU_CYCLE_SECONDS,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run `tuples` through the machine for `seconds`; equal seeds give equal runs.

    The manager is the one that runs on Spark. Its laws see a finished cycle every `control_seconds`: the paper's CPU
    cycle of 5 s, or any whole number of buffer cycles.
    """
    engine = TupleByTuple(queue.deadline_seconds for queue in tuples.classes)
    machine = _Machine(make_manager(options, engine), first_estimate_seconds, clean_at_dispatch, rng)
    columns = _Columns(tuples, machine.manager.policy.scheduler, first_estimate_seconds)
    total, cycles, cpu, seen = TupleCounts(), list[TupleCounts](), TupleCounts(), TupleCounts()
    occupancy: list[int] = []
    ticks = round(BUFFER_CYCLE_SECONDS / TICK_SECONDS)
    per_cpu_cycle, per_control = (round(s / BUFFER_CYCLE_SECONDS) for s in (CPU_CYCLE_SECONDS, control_seconds))
    steps = math.ceil(seconds / BUFFER_CYCLE_SECONDS)
    for step in range(steps):
        start, end = step * BUFFER_CYCLE_SECONDS, (step + 1) * BUFFER_CYCLE_SECONDS
        times, entries, offered = columns.between(start, end, machine.shedding.keep, rng)
        counts = TupleCounts(offered=offered, shed=offered - len(entries))
        owed = max(0.0, machine.free_at - start)
        bounds = np.searchsorted(times, start + TICK_SECONDS * np.arange(1, ticks + 1))
        bounds[-1] = len(times)
        arrivals, low = times.tolist(), 0
        for tick, high in enumerate(bounds.tolist(), 1):
            until = start + tick * TICK_SECONDS
            machine.advance(arrivals[low:high], entries[low:high], until, counts)
            occupancy.append(len(machine.heap))
            low = high
        counts.busy_seconds = counts.cost_seconds + owed - max(0.0, machine.free_at - end)
        machine.clean(end, counts)
        cpu.add(counts)
        seen.add(counts)
        if (step + 1) % per_control == 0:
            machine.control(end, control_seconds, seen)
            seen = TupleCounts()
        if (step + 1) % per_cpu_cycle == 0 or step + 1 == steps:
            total.add(cpu)
            cycles.append(cpu)
            cpu = TupleCounts()
        # After the laws, so that what they decided holds at once.
        machine.adapt(counts)
        if progress is not None:
            progress((step + 1) / steps)
    return Run(
        steps * BUFFER_CYCLE_SECONDS,
        total,
        tuple(cycles),
        np.array(occupancy, dtype=np.int64),
        len(machine.heap),
        None if machine.limit >= UNBOUNDED else machine.limit,
    )


class _Columns:
    """Tuples as heap entries, a cycle at a time, so that memory stays that of the columns."""

    def __init__(self, tuples: Tuples, scheduler: Scheduler, cost_seconds: float) -> None:
        ranks = [scheduler.rank(queue, cost_seconds=cost_seconds) for queue in tuples.classes]
        self.tuples = tuples
        self.level = np.array([rank.level for rank in ranks])
        self.offset = np.array([rank.offset_seconds for rank in ranks])
        self.tie = np.array([rank.tie for rank in ranks])
        self.deadline = np.array([queue.deadline_seconds for queue in tuples.classes])
        self.times = tuples.arrived if scheduler.clock == "arrived" else tuples.generated

    def between(
        self, start: float, end: float, keep: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], list[Entry], int]:
        """Arrival times and entries of the tuples kept in [start, end), and how many were offered."""
        low, high = (int(place) for place in np.searchsorted(self.tuples.arrived, (start, end)))
        chosen = np.arange(low, high)
        if keep < 1.0:
            chosen = chosen[rng.random(high - low) < keep]
        queue = self.tuples.queue[chosen]
        entries: list[Entry] = list(
            zip(
                self.level[queue].tolist(),
                (self.times[chosen] + self.offset[queue]).tolist(),
                self.tie[queue].tolist(),
                chosen.tolist(),
                self.tuples.generated[chosen].tolist(),
                self.deadline[queue].tolist(),
                self.tuples.cost[chosen].tolist(),
                strict=True,
            )
        )
        return self.tuples.arrived[chosen], entries, high - low


class _Machine:
    """The queue, the CPU and the manager: all that changes as simulated time goes on.

    The queue is one for all deadline classes, with one limit and one adaptor, as in the paper.
    """

    def __init__(
        self, manager: BufferManager, nominal_seconds: float, clean_at_dispatch: bool, rng: np.random.Generator
    ) -> None:
        self.manager = manager
        self.nominal_seconds = nominal_seconds
        self.clean_at_dispatch = clean_at_dispatch
        self.rng = rng
        self.heap: list[Entry] = []
        self.free_at = self.pace_start = self.gap_seconds = 0.0
        self.passed = 0
        self.shedding = Shedding()
        self._adaptor_state: Any = None
        (view,) = manager.views([self._view(TupleCounts())], BUFFER_CYCLE_SECONDS)
        self.limit = view.limit

    @property
    def cost_seconds(self) -> float:
        """The expected CPU-seconds of a tuple, ET_p."""
        return self.nominal_seconds * self.manager.engine.seconds_per_work

    def _view(self, counts: TupleCounts) -> QueueView:
        return QueueView(
            "all",
            QueueClass("all"),
            waiting=len(self.heap),
            arrived=counts.offered,
            served=counts.processed,
            cost_seconds=self.nominal_seconds,
            rate=counts.offered / BUFFER_CYCLE_SECONDS,
        )

    def adapt(self, counts: TupleCounts) -> None:
        """The adaptor's share for the next buffer cycle, from what the last one showed."""
        (view,) = self.manager.views([self._view(counts)], BUFFER_CYCLE_SECONDS)
        self.limit = view.limit
        adaptor = self.manager.policy.adaptor
        state = adaptor.initial() if self._adaptor_state is None else self._adaptor_state
        self._adaptor_state, self.shedding = adaptor.update(state, view.sample)

    def control(self, now: float, seconds: float, counts: TupleCounts) -> None:
        """The laws see a finished cycle; what they let pass, passes evenly during the next one."""
        seen = CycleSeen(
            now,
            seconds,
            kept=counts.processed * self.nominal_seconds,
            offered=counts.offered * self.nominal_seconds,
            waiting=len(self.heap) * self.nominal_seconds,
            arrived=0.0,
            miss_ratio=counts.miss_ratio if counts.processed else None,
        )
        self.manager.control(seen)
        budget = self.manager.budget_seconds
        _, most = self.manager.engine.bounds(seen.waiting + seen.offered)
        held = budget is not None and budget < most
        self.pace_start, self.passed = now, 0
        self.gap_seconds = seconds * self.cost_seconds / max(budget or 0.0, 1e-9) if held else 0.0

    def clean(self, now: float, counts: TupleCounts) -> None:
        """The cleaner's pass at the end of a buffer cycle: learn the cost, then purge from the front."""
        self.manager.engine.learn(counts.processed * self.nominal_seconds, counts.cost_seconds)
        if not self.manager.policy.cleans or not self.heap:
            return
        order = sorted(self.heap)
        busy = max(0.0, self.free_at - now)
        waiting = ((entry[4], entry[5]) for entry in order)
        flags = purged(waiting, now=now, cost_seconds=self.cost_seconds, busy_seconds=busy)
        self.heap = [entry for entry, gone in zip(order, flags, strict=True) if not gone]
        counts.purged += sum(flags)

    def advance(self, arrivals: list[float], entries: list[Entry], until: float, counts: TupleCounts) -> None:
        """Play the arrivals up to `until`. Locals instead of attributes: this is the one hot loop."""
        heap, free_at, passed = self.heap, self.free_at, self.passed
        pace_start, gap = self.pace_start, self.gap_seconds
        checks = self.manager.policy.cleans and self.clean_at_dispatch
        expected, limit, overflow = self.cost_seconds, self.limit, self.shedding.overflow
        processed = late = gone = overflowed = 0
        cost_seconds = delay_seconds = 0.0
        # A last pseudo-arrival at `until` serves what can start before then.
        ends: Entry = (0, 0.0, 0, -1, 0.0, 0.0, 0.0)
        for now, entry in zip((*arrivals, until), (*entries, ends), strict=True):
            while heap:
                start = pace_start + passed * gap
                if start < free_at:
                    start = free_at
                if start >= now:
                    break
                _, _, _, _, generated, deadline, cost = heappop(heap)
                if checks and start - generated + expected > deadline:
                    gone += 1
                    continue
                free_at = start + cost
                passed += 1
                processed += 1
                cost_seconds += cost
                delay = free_at - generated
                delay_seconds += delay
                if delay > deadline:
                    late += 1
            if entry[3] < 0:
                break
            if not heap and free_at < now:
                free_at = now
            # A tuple that finds the CPU idle never waits, so it passes even where nothing may (a limit of 0).
            if len(heap) < limit or (not heap and free_at <= now and pace_start + passed * gap <= now):
                heappush(heap, entry)
                continue
            overflowed += 1
            if overflow is not Overflow.TAIL and heap:
                _replace(heap, entry, overflow, self.rng)
        self.heap, self.free_at, self.passed = heap, free_at, passed
        counts.processed += processed
        counts.late += late
        counts.purged += gone
        counts.overflow += overflowed
        counts.cost_seconds += cost_seconds
        counts.delay_seconds += delay_seconds


def _replace(heap: list[Entry], newest: Entry, overflow: Overflow, rng: np.random.Generator) -> None:
    """Let the newest into a full queue in place of the next to be served, or of any one (maybe itself)."""
    if overflow is Overflow.FRONT:
        heapreplace(heap, newest)
        return
    place = int(rng.integers(len(heap) + 1))
    if place < len(heap):
        heap[place] = newest
        heapify(heap)
