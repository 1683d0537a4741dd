"""Run a network's nodes in one process on real Spark: queries, the loop that steers them, and the accounts.

Every tick the loop asks the logs how much has arrived, takes the batches that have ended, steers, and writes the next
decision; the queries read it when they cut their next batch. Nothing here waits for a batch, so a slow one cannot
stop the loop, and a dead loop leaves the last decision in force.
"""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodway.agent.backlog import Backlog
from floodway.agent.feeding import Feed, Feeder
from floodway.agent.rates import RateMeter
from floodway.agent.record import Record
from floodway.agent.refining import Refining
from floodway.agent.report import Latency, RunReport
from floodway.agent.steering import FragmentBatch, Steered, Steering
from floodway.errors import FloodwayError, InputError
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.factory import make_planner
from floodway.planning.program import Program
from floodway.spark.cpu import CpuMeter
from floodway.spark.decision import Mode, write_decision
from floodway.spark.fragment_query import BatchReport, FragmentQuery, RunningFragment
from floodway.spark.fragments import Fragment, fragments
from floodway.spark.layout import Layout
from floodway.spark.ledger import Ledger, LedgerLine, Reason
from floodway.spark.logs import StreamLogs, create_sink_logs
from floodway.spark.session import Session, spark_session
from floodway.spark.shed_state import ShedFiles, write_atomically
from floodway.spark.source import register

TICK_SECONDS = 0.1
RATE_WINDOW_SECONDS = 1.0
DEFAULT_TARGET_SECONDS = 2.0
DRAIN_TARGETS = 3.0


class RunError(FloodwayError):
    """A query of the run failed; the checkpoint is intact and a restart continues."""


@dataclass(frozen=True)
class RunOptions:
    """How to run. `settle_seconds` at the start count for the ledger but not for latency and score.

    Costs are refined while it runs and reported; with `replan` they are planned with as well.
    """

    seconds: float
    root: Path
    mode: Mode = "enforce"
    target_seconds: float | None = None
    controller: str = "batch"
    planner: str = "exact"
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    settle_seconds: float = 10.0
    nodes: tuple[str, ...] = ()
    side_output: int = 0
    replan: bool = False
    progress: Callable[[Mapping[str, Any]], None] = lambda status: None


def target_of(network: Network, given: float | None) -> float:
    """The latency target: the option, else the strictest of the outputs, else two seconds."""
    targets = [out.latency for out in network.outputs.values() if out.latency is not None]
    return given if given is not None else min(targets, default=DEFAULT_TARGET_SECONDS)


def run_network(network: Network, options: RunOptions, spark: Session | None = None) -> RunReport:
    """Run for `options.seconds` seconds and report. The session is left running when it was given."""
    _steering(network, options)  # refuses what is wrong before Spark starts
    session = spark or spark_session(f"floodway-{network.name}")
    try:
        register(session)
        run = _Run(session, network, options)
        return run.to_end()
    finally:
        if spark is None:
            session.stop()


class _Run:
    def __init__(self, spark: Session, network: Network, options: RunOptions) -> None:
        self.network = network
        self.options = options
        self.layout = Layout(options.root)
        self.target = target_of(network, options.target_seconds)
        self.ledger = Ledger(self.layout.ledger)
        self.reports: queue.SimpleQueue[BatchReport] = queue.SimpleQueue()
        self.fragments = _fragments(network, options.nodes)
        self.backlog = Backlog(network, self.fragments)
        self.queries = [
            FragmentQuery(spark, network, fragment, self.layout, self.ledger, self.reports.put, self.backlog.cut)
            for fragment in self.fragments.values()
        ]
        self.steering = _steering(network, options)
        self.meter = RateMeter(RATE_WINDOW_SECONDS)
        self.cpu = CpuMeter(spark)
        self.refining = Refining(network) if len(self.fragments) == 1 else None
        self.record = Record(network)
        self.warm: set[str] = set()
        self.mode: Mode = options.mode

    def to_end(self) -> RunReport:
        with Feeder(self.network, self.layout, self.options.feeds) as feeder:
            create_sink_logs(self.queries, self.network, self.layout)
            self.logs = StreamLogs(self.network, self.layout)
            self.arrived = self.logs.totals()
            self._steer(time.time())
            running = [query.start() for query in self.queries]
            try:
                feeder.start()
                self._loop(running)
                feeder.stop()
                self._drain(running)
            finally:
                for query in running:
                    query.stop()
            self._collect(time.time())
        return self._report()

    def _loop(self, running: Iterable[RunningFragment]) -> None:
        self.record.begin(time.time(), self.arrived)
        end = time.time() + self.options.seconds
        settled = False
        while (now := time.time()) < end:
            _raise_failure(running, self.layout)
            self.mode = ShedFiles(self.layout.root).read_mode() or self.options.mode
            self._collect(now)
            steered = self._steer(now)
            if not settled and now - self.record.started >= self.options.settle_seconds:
                settled = True
                self.record.settle(now, self.arrived)
            status = self.record.status(now, self.target, steered, self.arrived)
            write_atomically(self.layout.status, json.dumps(status))
            self.options.progress(status)
            time.sleep(max(0.0, TICK_SECONDS - (time.time() - now)))
        self.record.end(time.time(), self.arrived)

    def _drain(self, running: Iterable[RunningFragment]) -> None:
        """Let the queries finish what waits, as long as a protected job needs; more is left to a restart."""
        end = time.time() + DRAIN_TARGETS * self.target
        while (now := time.time()) < end and not self.backlog.idle(self.arrived):
            _raise_failure(running, self.layout)
            self._collect(now)
            self._steer(now)
            time.sleep(TICK_SECONDS)

    def _steer(self, now: float) -> Steered:
        self.arrived = self.logs.totals()
        self.meter.sample(now, self.arrived)
        rates = self.meter.rates()
        demand = self.backlog.demand(now, self.arrived, rates, self.steering.period_seconds)
        steered = self.steering.decide(rates, demand, self.mode, int(now * 1e6))
        write_decision(self.layout.decision, steered.decision)
        return steered

    def _collect(self, now: float) -> None:
        """Take the batches that have ended since the last tick."""
        while not self.reports.empty():
            report = self.reports.get()
            drops = [line for line in report.lines if line.reason == Reason.SHEDDER]
            offered = {line.at: line.offered for line in drops}
            kept = {line.at: line.kept for line in drops}
            self.backlog.ended(report.fragment, report.seconds)
            waiting = self.backlog.waiting(self.arrived)
            latency = self.record.batch(report, self.steering.scale)
            batch = FragmentBatch(
                report.fragment, offered, kept, report.seconds, latency, _arc_keeps(self.network, report)
            )
            # The first batch of a query starts workers and compiles its plan: it says nothing about those to come.
            if report.fragment in self.warm:
                self.steering.observe(now, batch, waiting)
                self._refine(kept, batch.arc_keeps)
            self.warm.add(report.fragment)

    def _refine(self, kept: Mapping[str, int], arc_keeps: Mapping[str, float]) -> None:
        """Correct the costs that are planned with; only where one query's CPU time is all there is."""
        if self.refining is None:
            return
        corrected = self.refining.observe(kept, arc_keeps, self.cpu.cpu_seconds())
        if corrected is not None and self.options.replan:
            self.steering.plan_with(make_planner(corrected, self.options.planner))

    def _report(self) -> RunReport:
        rates, throughput = self.record.rates(), self.record.throughput()
        load = flows(self.network, rates, _kept_shares(self.record.lines)).load
        scale = max(load[name] / node.cpu for name, node in self.network.nodes.items())
        exact = ExactPlanner(Program(self.network))
        control = self.steering.control.values()
        return RunReport(
            lines=tuple(self.ledger.read()),
            differences=tuple(self.ledger.reconcile()),
            latency=Latency.of(*self.record.latencies(), self.target),
            score=sum(self.network.outputs[name].weight * rate for name, rate in throughput.items()),
            optimum=exact.plan(rates, scale or 1.0).score,
            nominal_optimum=exact.plan(rates).score,
            load=load,
            throughput=throughput,
            rates=rates,
            capacity_scale=scale,
            measured_seconds=self.record.measured_seconds,
            mode=self.mode,
            unreachable=any(decision.unreachable for decision in control),
            floor_seconds=max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
            costs=self.refining.costs() if self.refining else {},
            points=tuple(self.record.points),
        )


def _steering(network: Network, options: RunOptions) -> Steering:
    return Steering(
        make_planner(network, options.planner),
        _fragments(network, options.nodes),
        target_seconds=target_of(network, options.target_seconds),
        controller=options.controller,
    )


def _fragments(network: Network, nodes: tuple[str, ...]) -> dict[str, Fragment]:
    """All fragments to run, by `node.name`."""
    direct = [out.name for out in network.outputs.values() if out.source in network.streams]
    if direct:
        raise InputError(
            f"outputs.{direct[0]} reads a stream directly, so no node runs it", hint="Put a map between them"
        )
    chosen = nodes or tuple(network.nodes)
    return {f"{node}.{f.name}": f for node in chosen for f in fragments(network, node)}


def _raise_failure(running: Iterable[RunningFragment], layout: Layout) -> None:
    for query in running:
        reason = query.failure()
        if reason is not None:
            raise RunError(reason, hint=f"Mend it and run again with --state {layout.root} to continue")


def _arc_keeps(network: Network, report: BatchReport) -> dict[str, float]:
    return {
        line.at: line.kept / line.offered
        for line in report.lines
        if line.offered and line.reason == Reason.SHEDDER and line.at not in network.streams
    }


def _kept_shares(lines: Iterable[LedgerLine]) -> dict[str, float]:
    """Share kept at each place over many batches."""
    offered: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for line in lines:
        if line.reason == Reason.SHEDDER:
            offered[line.at] += line.offered
            kept[line.at] += line.kept
    return {at: kept[at] / count for at, count in offered.items() if count}
