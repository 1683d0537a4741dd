"""The buffer of a running network: looks at the logs, asks a manager, and puts its answer into the decision.

One manager a fragment, because one fragment is one query, and its queues share its batches. The loop calls, every
tick, `demand` (before the plan is made) and `told` (after); `cut` when a query has journaled a batch, from that
query's thread; `ended` when a batch is done.

A step is for the state that the last journaled batch left. The source takes it over as a whole or not at all, so a
step that comes late or twice does nothing, and what a batch admitted can be told from its offset alone.

The queues of a running fragment as the agent sees them: one for each partition of each stream that it reads.

What waits in a queue is known from three places: the cursor that the last batch journaled, the end of the log, and
marks that tell when tuples came. Nothing else is remembered, so a restart that reads the journal knows all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from floodway.agent.loop.steering import FragmentBatch, Steered, Steering, source_work
from floodway.buffering.cursors import BatchDecision, QueueView
from floodway.buffering.engines import MicroBatches
from floodway.buffering.managers import BufferManager, CycleSeen, make_manager
from floodway.buffering.marks import ArrivalMarks
from floodway.buffering.options import BufferOptions
from floodway.buffering.queues import QueueClass
from floodway.buffering.ranges import Cursor
from floodway.control.base import Decision
from floodway.errors import InputError
from floodway.job.clocks import PROCESS_CLOCK, SteadyClock
from floodway.job.decision import QueueStep, StreamDecision, named
from floodway.network.model import Network
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import JournaledBatch, last_offsets
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import QueueLog
from floodway.spark.source.offsets import BatchOffset
from floodway.units import PPM

SAMPLES = 17
"""Arrival times looked up in a queue for one decision, among the waiting and among the new tuples each."""
RATE_SECONDS = 10.0


@dataclass
class Queue:
    """One partition of a stream: its class, nominal CPU-seconds a tuple, and what the last batch left.

    `location` is the name that the stream's source has in decisions and offsets.
    """

    location: str
    partition: int
    kind: QueueClass
    work_seconds: float
    log: QueueLog
    cursor: Cursor
    end: int = 0
    served: int = 0
    adaptor_state: Any = None
    marks: ArrivalMarks = field(default_factory=ArrivalMarks)

    @property
    def name(self) -> str:
        """`location/partition`, as in the sinks' counts."""
        return f"{self.location}/{self.partition}"

    @property
    def waiting(self) -> int:
        """Tuples that wait, judged or new, dropped ones not counted."""
        return self.cursor.waiting + max(0, self.end - self.cursor.tail)

    def look(self, now: float, end: int) -> None:
        """Note how far the log reaches, and when its newest tuple came."""
        self.end = end
        if end <= self.cursor.head:
            return
        if self.marks.newest is None:
            for position in _spread(self.cursor.head, end):
                self._mark(position, now)
        self._mark(end - 1, now)

    def _mark(self, position: int, now: float) -> None:
        if self.marks.newest is not None and position <= self.marks.newest:
            return
        arrived = self.log.arrival_seconds(self.partition, position)
        self.marks.note(position, now if arrived is None else arrived)

    def settled(self, offset: BatchOffset, adaptor_state: Any) -> None:
        """A batch was cut and journaled: the queue is what its offset says, the adaptor's state what it was then."""
        self.cursor = offset.cursor(self.partition)
        self.served = offset.account(self.partition).kept
        self.marks.forget_before(self.cursor.head)
        if adaptor_state is not None:
            self.adaptor_state = adaptor_state

    def view(self, now: float) -> QueueView:
        """The queue for its manager, at the nominal cost of a tuple."""
        waiting, arrived = self.cursor.waiting, max(0, self.end - self.cursor.tail)
        places = [self.cursor.position(place) for place in _spread(0, waiting)]
        return QueueView(
            name=self.name,
            queue=self.kind,
            waiting=waiting,
            arrived=arrived,
            served=self.served,
            cost_seconds=self.work_seconds,
            rate=self.marks.rate(now, window_seconds=RATE_SECONDS),
            waiting_times=self._times(places, now),
            arrived_times=self._times(_spread(self.cursor.tail, self.end), now),
            adaptor_state=self.adaptor_state,
        )

    def _times(self, positions: Sequence[int], now: float) -> tuple[float, ...]:
        # A tuple from the future came now: a clock that was set back must neither age nor starve it.
        return tuple(min(seconds, now) for seconds in self.marks.times(positions)) if positions else ()


def _spread(start: int, end: int) -> list[int]:
    """At most SAMPLES numbers evenly spread over [start, end), the first and the last included."""
    if end <= start:
        return []
    return sorted({int(at) for at in np.linspace(start, end - 1, min(SAMPLES, end - start))})


LEAST_WORK_SECONDS = 1e-6
REMEMBERED = 200
"""Decisions whose adaptor states are kept until the batch that used one is seen: some twenty seconds of ticks."""


@dataclass(frozen=True)
class Choice:
    """What the sources are to do, how many tuples of each location the next batch takes, and the adaptors' states."""

    streams: Mapping[str, StreamDecision]
    takes: Mapping[str, float]
    states: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


class Buffering:
    """The buffers of all fragments that read streams."""

    def __init__(
        self,
        options: BufferOptions,
        network: Network,
        fragments: Mapping[str, Fragment],
        layout: RunLayout,
        clock: SteadyClock = PROCESS_CLOCK,
    ) -> None:
        self._parts = {
            name: _Part(options, network, fragment, layout, clock)
            for name, fragment in fragments.items()
            if any(spec.producer in network.streams and spec.location is not None for spec in fragment.sources)
        }

    def demand(self, now: float, steering: Steering) -> dict[str, float]:
        """Tuples/s of each stream that the next batches will hold: what is planned for, the rest waits.

        The manager has measured what a batch can hold; so the plan gets the capacity that its choice asks for, and
        sheds for other nodes and on branches only.
        """
        takes = dict.fromkeys(steering.network.streams, 0.0)
        for name, part in self._parts.items():
            choice = part.choose(now)
            work = sum(part.work[location] * count for location, count in choice.takes.items())
            scale = max(1.0, work / steering.period_seconds)
            steering.control[name] = Decision(work, scale, choice.reason)
            for location, count in choice.takes.items():
                stream = part.producer[location]
                takes[stream] = max(takes[stream], count / steering.period_seconds)
        return takes

    def told(self, steered: Steered) -> Steered:
        """The decision with the managers' choices in it."""
        streams = dict(steered.decision.streams)
        for part in self._parts.values():
            for location, own in part.choice.streams.items():
                planned = streams.get(location, StreamDecision())
                # Both keeps are shares of what enters a batch; a budget would cut a batch that the buffer has cut.
                keep_ppm = planned.keep_ppm * own.keep_ppm // PPM
                streams[location] = replace(own, keep_ppm=keep_ppm)
        decision = named(replace(steered.decision, streams=streams))
        for part in self._parts.values():
            part.issue(decision.plan)
        return replace(steered, decision=decision)

    def cut(self, query: str, journal: JournaledBatch) -> None:
        """A batch was journaled: its queues go on from there."""
        if query in self._parts:
            self._parts[query].cut(journal.offsets)

    def ended(self, now: float, batch: FragmentBatch, miss_ratio: float | None) -> None:
        """A batch is done. A miss ratio seen at the end of a chain concerns all that feed it."""
        for name, part in self._parts.items():
            if name == batch.fragment:
                part.ended(now, batch, miss_ratio)
            elif miss_ratio is not None:
                part.missed = miss_ratio

    def waiting(self) -> dict[str, int]:
        """Tuples in each queue, for the status."""
        return {queue.name: queue.waiting for part in self._parts.values() for queue in part.queues}


class _Part:
    """One fragment: its queues, its manager, and the choices it has issued."""

    def __init__(
        self, options: BufferOptions, network: Network, fragment: Fragment, layout: RunLayout, clock: SteadyClock
    ) -> None:
        self.producer = {
            spec.location: spec.producer
            for spec in fragment.sources
            if spec.location is not None and spec.producer in network.streams
        }
        nominal = source_work(network, fragment, {})
        self.work = {location: max(nominal.get(location, 0.0), LEAST_WORK_SECONDS) for location in self.producer}
        self._logs = {location: QueueLog.of(network, layout, name, clock) for location, name in self.producer.items()}
        journaled = last_offsets(layout.checkpoint(fragment))
        self.queues: list[Queue] = []
        for location, log in self._logs.items():
            offset = journaled.get(location)
            for partition, first in sorted(log.first().items()):
                known = offset if offset is not None and partition in offset.end else None
                start = BatchOffset(location, {partition: first}, {partition: first}) if known is None else known
                kind = options.queue_class(network, self.producer[location], partition)
                cursor = start.cursor(partition)
                self.queues.append(Queue(location, partition, kind, self.work[location], log, cursor))
        names = {f"{q.kind.stream}/{q.partition}" for q in self.queues}
        for name in options.deadlines:
            if "/" in name and name.partition("/")[0] in self.producer.values() and name not in names:
                raise InputError(f"a deadline for {name}, which its log has not", hint=f"It has {', '.join(names)}")
        engine = MicroBatches(queue.kind.deadline_seconds for queue in self.queues)
        self._manager: BufferManager = make_manager(options, engine)
        self.choice = Choice({}, {})
        self._issued: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._lock = Lock()
        self._reported: dict[str, int] = {}
        self.missed: float | None = None

    def choose(self, now: float) -> Choice:
        with self._lock:
            ends = {location: log.ends() for location, log in self._logs.items()}
            for queue in self.queues:
                queue.look(now, ends[queue.location].get(queue.partition, queue.cursor.tail))
            decided = self._manager.decide(now, [queue.view(now) for queue in self.queues])
            self.choice = _choice(self.queues, decided, self._manager.reason)
            return self.choice

    def issue(self, plan: str) -> None:
        """The choice is in force under this name."""
        with self._lock:
            self._issued[plan] = self.choice.states
            while len(self._issued) > REMEMBERED:
                self._issued.popitem(last=False)

    def cut(self, offsets: Mapping[str, BatchOffset]) -> None:
        with self._lock:
            for queue in self.queues:
                offset = offsets.get(queue.location)
                if offset is not None and queue.partition in offset.end:
                    queue.settled(offset, self._issued.get(offset.plan, {}).get(queue.name))

    def ended(self, now: float, batch: FragmentBatch, miss_ratio: float | None) -> None:
        with self._lock:
            kept = sum(self.work.get(at, 0.0) * count for at, count in batch.kept.items())
            seen = CycleSeen(
                now,
                batch.batch_seconds,
                kept=kept,
                offered=sum(q.work_seconds * (q.end - self._reported.get(q.name, q.end)) for q in self.queues),
                waiting=sum(q.work_seconds * q.cursor.waiting for q in self.queues),
                arrived=sum(q.work_seconds * max(0, q.end - q.cursor.tail) for q in self.queues),
                miss_ratio=self.missed if miss_ratio is None else miss_ratio,
            )
            self._reported = {queue.name: queue.end for queue in self.queues}
            self.missed = None
            self._manager.engine.learn(kept, batch.batch_seconds)
            self._manager.control(seen)


def _choice(queues: Sequence[Queue], decided: BatchDecision, reason: str) -> Choice:
    """A manager's decision in positions of the logs."""
    steps: dict[str, dict[int, QueueStep]] = {}
    takes: dict[str, float] = {}
    for queue, one in zip(queues, decided.queues, strict=True):
        passage = one.passage(queue.cursor, max(queue.end, queue.cursor.tail))
        step = QueueStep(passage.cleaned, passage.read_from, passage.end, tuple(passage.cursor.to_offset()))
        steps.setdefault(queue.location, {})[queue.partition] = step
        takes[queue.location] = takes.get(queue.location, 0.0) + one.take
    streams = {location: StreamDecision(buffer=by_partition) for location, by_partition in steps.items()}
    states = {one.name: one.adaptor_state for one in decided.queues}
    waiting = sum(queue.waiting for queue in queues)
    return Choice(streams, takes, states, f"{reason}, waiting {waiting}")
