"""The loop of a running network, or of one node of it: look, collect, steer, tell. It knows neither files nor ends.

Every tick the loop asks the logs how much has arrived, takes the batches that have ended, steers, and writes the next
decision; the queries read it when they cut their next batch. Nothing here waits for a batch, so a slow one cannot
stop the loop, and a dead loop leaves the last decision in force.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodway.agent.loop.backlog import RateMeter
from floodway.agent.loop.batch_figures import (
    LastCuts,
    capacity_needed,
    finished_batch,
    limits_words,
    loop_status,
    result_latencies,
)
from floodway.agent.loop.capacity_wait import CapacityWait
from floodway.agent.loop.classes import Classes
from floodway.agent.loop.plan_book import PlanBook
from floodway.agent.loop.record import Deadlines, OutputLatencies, RunRecord
from floodway.agent.loop.refinement import Counted, Refinement
from floodway.agent.loop.sizes import MeasuredSizes, NetworkSizes
from floodway.agent.loop.steering import FragmentBatch, Steered, Steering, source_work
from floodway.control.loop import Patience
from floodway.errors import FloodwayError, InputError
from floodway.job.clocks import PROCESS_CLOCK, SteadyClock
from floodway.job.decision import Mode, OperatorMode, follow_mode, write_decision
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.options import JobOptions
from floodway.job.status.batches import Batch, BatchLog
from floodway.job.status.figures import read_figures
from floodway.job.status.parts import NO_MEASUREMENT, BehindPart, would_words
from floodway.job.status.status import Kind, Status
from floodway.job.store.store import StoreError
from floodway.network.model import Network
from floodway.spark.log import LogReader
from floodway.spark.log.kafka_links import is_topic
from floodway.spark.measure.cpu import cpu_meter
from floodway.spark.query.fragment_query import FragmentQuery, FragmentReport
from floodway.spark.query.fragment_windows import FragmentWindows
from floodway.spark.query.fragments import Fragment, fragments
from floodway.spark.query.journal import JournaledBatch, committed_batches
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import create_sink_logs, stream_arrivals
from floodway.spark.query.retaining import Retaining
from floodway.spark.session.session import Session
from floodway.spark.shed.executors import executor_count, executor_requests
from floodway.spark.source.keys import KeyDrops

if TYPE_CHECKING:
    from floodway.agent.loop.buffering import Buffering

TICK_SECONDS = 0.1
RATE_WINDOW_SECONDS = 1.0


class RunError(FloodwayError):
    """A query of the run failed; the checkpoint is intact and a restart continues."""


@dataclass(frozen=True)
class LoopOptions:
    """A job's options, and how the loop looks at what arrives.

    `delivered_every` is for inputs that another node writes: seconds from one delivery to the next, so that a
    delivery that has just come is not taken for a backlog. `retaining` says what the logs keep that are written here,
    `outputs` are those of the whole network where this is one node of it, `targets` theirs: latency counts there.
    `windows` are the Window Drops of every query, `keys` the streams that are shed by key.
    """

    job: JobOptions = field(default_factory=JobOptions)
    retaining: Retaining | None = None
    rate_window_seconds: float = RATE_WINDOW_SECONDS
    delivered_every: Mapping[str, float] = field(default_factory=dict)
    outputs: Collection[str] | None = None
    windows: Mapping[str, FragmentWindows] = field(default_factory=dict)
    keys: Mapping[str, KeyDrops] = field(default_factory=dict)
    targets: Mapping[str, float] | None = None


class SteeringLoop:
    """Queries, and the state of the loop that steers them; whoever owns it calls `tick` until the end.

    `on_costs` gets the network with costs as the batches show them, when they have changed remarkably, `on_sizes` those
    of links and state; `on_batch` every finished batch. All times are those of `clock`.
    """

    def __init__(
        self,
        spark: Session,
        network: Network,
        steering: Sequence[Steering],
        parts: Mapping[str, Fragment],
        layout: RunLayout,
        options: LoopOptions,
        *,
        on_costs: Callable[[Network], None] = lambda network: None,
        on_sizes: Callable[[MeasuredSizes], None] = lambda sizes: None,
        on_batch: Callable[[FragmentBatch, FragmentReport], None] = lambda batch, report: None,
        clock: SteadyClock = PROCESS_CLOCK,
    ) -> None:
        self.clock = clock
        self.network = network
        self.steering = Classes(network, steering, options.delivered_every)
        self.layout = layout
        self.ledger = Ledger(layout.store)
        self.record = RunRecord(self.network)
        self.figures, last = read_figures(layout.store)
        self.batches = BatchLog(layout.store, last)
        self.reason = NO_MEASUREMENT
        self._behind: BehindPart | None = None
        self._last = LastCuts(options.keys)
        self.errors = 0
        self._outputs = tuple(network.outputs if options.outputs is None else options.outputs)
        targets = options.targets or options.job.output_targets(network)
        own = {name: target for name, target in targets.items() if name in network.outputs}
        self.output_latencies = OutputLatencies(own, differ=len(set(targets.values())) > 1)
        self._operator = OperatorMode(layout.store, options.job.mode, f"network {network.name}")
        self.mode: Mode = self._operator.look()
        self._buffering = options.job.buffering
        self.arrived: dict[str, int] = {}
        executors = executor_requests(spark, "--ask-executors") if options.job.ask_executors else None
        self._executors = executor_count(spark)
        self._wait = CapacityWait(Patience(options.job.shed_after), executors)
        self._options = options
        self._reports: queue.SimpleQueue[FragmentReport] = queue.SimpleQueue()
        self.deadlines = Deadlines(self.network, self._buffering.deadlines if self._buffering else {})
        self._buffer: Buffering | None = None
        self._plans = PlanBook(layout.root)
        self._parts = parts
        self.queries = [
            FragmentQuery(
                spark,
                self.network,
                fragment,
                layout,
                self.ledger,
                self._reports.put,
                self._cut,
                side_output=options.job.side_output,
                on_loss=options.job.on_loss,
                retaining=options.retaining,
                windows=options.windows.get(fragment.query),
                keys=options.keys,
                clock=clock,
            )
            for fragment in parts.values()
        ]
        self._meter = RateMeter(options.rate_window_seconds)
        # Only where one query's CPU time is all there is can it be told whose it was.
        self._cpu = cpu_meter(spark) if len(parts) == 1 else None
        self.refining = Refinement(self.network) if self._cpu is not None else None
        self.sizes = NetworkSizes(self.network)
        self._on_costs = on_costs
        self._on_sizes = on_sizes
        self._on_batch = on_batch
        self._seen: set[str] = set()
        self._warm: set[str] = set()

    def missing_inputs(self) -> list[str]:
        """Inputs whose log is not there yet."""
        return sorted({name for query in self.queries for name in query.missing_sources()})

    def start(self, now: float) -> None:
        """Create the sinks' logs, write a first decision and start the queries."""
        create_sink_logs(self.queries, self.network, self.layout)
        self._logs = stream_arrivals(self.network, self.layout)
        if self._buffering is not None:
            from floodway.agent.loop.buffering import Buffering

            self._buffer = Buffering(self._buffering, self.network, self._parts, self.layout, self.clock)
        self.steer(now)
        for query in self.queries:
            query.start()

    def tick(self, now: float) -> Steered:
        """One turn; raises RunError if a query has failed."""
        self._raise_failure()
        self.collect(now)
        return self.steer(now)

    def status(self, target_seconds: float, steered: Steered, kind: Kind = "run") -> Status:
        """The job at this moment."""
        found = loop_status(
            *(self.network, self.figures, steered),
            kind=kind,
            now=time.time(),
            target_seconds=target_seconds,
            waiting=self.waiting(),
            reason=self.reason,
            decision_seen=self._plans.seen,
            executors=self._executors(),
            efficiency=self._wait.efficiency.measured,
        )
        return replace(
            found,
            errors=self.errors + self._operator.errors,
            behind=self._behind,
            keys=self._last.keys(),
            would_drop_tuples=self._last.would_drop(self.mode),
            accuracy=self._last.accuracy(found.latency.mean, target_seconds),
            warnings=(*self._operator.warnings, *self._last.warnings()),
            outputs=self.output_latencies.now(),
        )

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no batch is under way."""
        return self.steering.idle(self.arrived)

    @property
    def started(self) -> bool:
        """Whether every query has found its sources and its place in them."""
        return all(query.started for query in self.queries)

    @property
    def warm(self) -> bool:
        """Whether every query has processed a batch since it was started, or had nothing to do but resume."""
        return all(query.name in self._seen or committed_batches(query.checkpoint) for query in self.queries)

    def waiting(self) -> dict[str, int]:
        """Tuples of each input that no batch has taken yet."""
        return self.steering.waiting(self.arrived)

    def link_bytes(self) -> dict[str, float]:
        """Bytes of one tuple that another node writes here, by producer; a topic does not tell them."""
        found = {}
        for name in self.network.streams:
            producer, arrow, _ = name.partition("->")
            address = self.layout.stream(self.network, name)
            if arrow and not is_topic(address) and (size := LogReader(address).tuple_bytes()) is not None:
                found[producer] = size
        return found

    def stop(self) -> None:
        """Stop the queries between two batches, where they come to one in time, and take their last reports."""
        for query in self.queries:
            query.stop()
        self.collect(self.clock.now())

    def steer(self, now: float) -> Steered:
        """Measure what has arrived, plan for the demand, write the decision in the operator's mode."""
        self.mode = self._operator.look()
        self.arrived = self._logs.totals()
        self._meter.sample(now, self.arrived)
        rates = self._meter.rates()
        demand = None if self._buffer is None else self._buffer.demand
        steered = self.steering.decide(now, self.arrived, rates, self.mode, time.time_ns() // 1000, demand)
        if self._buffer is not None:
            steered = self._buffer.told(steered)
        steered = self._wait.take(steered, capacity_needed(self.network, steered), now)
        self._plans.issued(steered.decision, steered)
        self._behind = self._look_behind(rates, steered)
        self.reason = self._wait.reason or self.steering.reason()
        if self._behind is not None and self.mode != "off":
            self.reason = self._behind.words
        self.reason += limits_words(self.steering.first.network, steered) + would_words(
            self._last.would_drop(self.mode)
        )
        write_decision(self.layout.decision, steered.decision)
        return steered

    def follow_mode(self) -> None:
        """Without a plan the decision in force stays, in the operator's mode."""
        self.mode = self._operator.look()
        follow_mode(self.layout.decision, self.mode)

    def _look_behind(self, rates: Mapping[str, float], steered: Steered) -> BehindPart | None:
        """How far behind a job is that drops nothing."""
        if not self.steering.lossless:
            return None
        seconds = self.steering.catch_up_seconds(self.arrived, rates)
        limits = [one.limit for one in steered.decision.streams.values() if one.limit is not None]
        would_take = sum(limits) if limits and self.mode == "observe" else None
        return BehindPart(sum(self.waiting().values()), seconds, self._options.job.max_age, would_take)

    def collect(self, now: float) -> None:
        """Take the batches that have ended since the last tick."""
        while not self._reports.empty():
            report = self._reports.get()
            counts = Counts.of(report.lines)
            offered, kept = dict(counts.offered), dict(counts.kept)
            self.steering.ended(report.fragment, report.seconds)
            arc_keeps = _arc_keeps(self.network, report)
            figures = self._finished(report, counts, arc_keeps)
            # A fragment without outputs of its own answers for what it delivers to the next one.
            late = figures.latencies if figures.latencies.count else result_latencies(report, report.delivered)
            batch = FragmentBatch(report.fragment, offered, kept, report.seconds, late.mean, arc_keeps, late.width)
            # The first batch that holds anything starts workers and compiles plans: it tells nothing of those to come.
            missed = self.deadlines.observe(report)
            if report.fragment in self._warm:
                if self._buffer is not None:
                    self._buffer.ended(now, batch, missed)
                else:
                    self.steering.observe(now, batch, self.arrived)
                if report.fragment == min(self._parts):  # one query is enough: all of them share the executors
                    self._wait.efficiency.take(self._executors(), self.steering.scale(report.fragment))
                self._refine(report)
            sizes = self.sizes.observe(report, self._parts[report.fragment].operators)
            self.record.state(figures, self.sizes.state_bytes)
            if sizes is not None:
                self._on_sizes(sizes)
            self._seen.add(report.fragment)
            if any(kept.values()):
                self._warm.add(report.fragment)
            self._on_batch(batch, report)

    def _finished(self, report: FragmentReport, counts: Counts, arc_keeps: Mapping[str, float]) -> Batch:
        """Put a batch on record."""
        work = source_work(self.network, self._parts[report.fragment], arc_keeps)
        batch = finished_batch(
            report,
            counts,
            inputs=self.network.streams,
            outputs=self._outputs,
            work_seconds=sum(work.get(at, 0.0) * count for at, count in counts.kept.items()),
            scale=self.steering.scale(report.fragment),
            reason=self.reason,
        )
        self.figures.add(report.lines, batch)
        try:
            self.batches.append(batch)
        except StoreError:  # a measurement is not worth the run; what the disk lacks shows where the ledger is written
            self.errors += 1
        self.record.batch(report.fragment, batch, counts)
        by_output = {name: result_latencies(report, [name]) for name in self._outputs}
        is_measured = self.record.is_measured(batch)
        self.output_latencies.add(report.query, batch.ended_seconds, by_output, is_measured=is_measured)
        return batch

    def _cut(self, query: str, journal: JournaledBatch) -> None:
        """A query has journaled a batch; called from its thread."""
        self._plans.cut(journal.plans)
        self._last.cut(query, journal)
        self.steering.cut(query, journal, self.clock.now())
        if self._buffer is not None:
            self._buffer.cut(query, journal)

    def _refine(self, report: FragmentReport) -> None:
        if self.refining is not None and self._cpu is not None:
            corrected = self.refining.observe(Counted.of(self.network, report.lines), self._cpu.cpu_seconds())
            if corrected is not None:
                self._on_costs(corrected)

    def _raise_failure(self) -> None:
        for query in self.queries:
            reason = query.failure()
            if reason is not None:
                raise RunError(reason, hint=f"Mend it and run again with --state {self.layout.root} to continue")


def fragments_of(network: Network, nodes: Iterable[str] = ()) -> dict[str, Fragment]:
    """All fragments of these nodes (all, if none is named), by their queries' names."""
    direct = [out.name for out in network.outputs.values() if out.source in network.streams]
    if direct:
        raise InputError(
            f"outputs.{direct[0]} reads a stream directly, so no node runs it", hint="Put a map between them"
        )
    chosen = tuple(nodes) or tuple(network.nodes)
    return {f.query: f for node in chosen for f in fragments(network, node)}


def _arc_keeps(network: Network, report: FragmentReport) -> dict[str, float]:
    return {
        line.at: line.kept / line.offered
        for line in report.lines
        if line.offered and line.reason == Reason.SHEDDER and line.at not in network.streams
    }
