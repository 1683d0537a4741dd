"""Run a network's nodes in one process on real Spark, for a given time, and report: `floodway run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from floodway.agent.loop.claim import claimed
from floodway.agent.loop.feeding import Feed, Feeder
from floodway.agent.loop.loop import TICK_SECONDS, LoopOptions, RunError, SteeringLoop, fragments_of
from floodway.agent.loop.report import RunReport
from floodway.agent.loop.run_files import save_network, save_report
from floodway.agent.loop.score import score_of
from floodway.agent.loop.steering import Steering
from floodway.job.options.options import JobOptions
from floodway.job.status.status import Status, write_status
from floodway.network.model import Network
from floodway.planning.factory import make_planner
from floodway.planning.plan import Planner
from floodway.spark.query.layout import Layout
from floodway.spark.query.logs import check_streams
from floodway.spark.query.retaining import retention_of, run_retaining
from floodway.spark.session.session import LOCAL_MASTER, Session, spark_session
from floodway.spark.source import register

DRAIN_TARGETS = 3.0
START_SECONDS = 120.0

__all__ = ["RunError", "RunOptions", "run_network"]


@dataclass(frozen=True, kw_only=True)
class RunOptions(JobOptions):
    """A job's options, and how long and where to run. `settle_seconds` at the start count for the ledger only.

    Costs are refined while it runs and reported; with `replan` they are planned with as well. With a `master` the root
    must be storage that its executors share. What logs retain is for those below the root that the run writes; links
    keep what their reader has not committed. `on_start` is called when Spark has started, which takes over SIGINT. Set
    `ended` to end early, in good order.
    """

    seconds: float
    root: Path
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    settle_seconds: float = 10.0
    nodes: tuple[str, ...] = ()
    progress: Callable[[Status], None] = lambda status: None
    on_start: Callable[[], None] = lambda: None
    ended: Event = field(default_factory=Event)


def run_network(network: Network, options: RunOptions, spark: Session | None = None) -> RunReport:
    """Run for `options.seconds` seconds and report. The session is left running when it was given."""
    network = options.checked(network)
    _steering(network, options)  # refuses what is wrong before Spark starts
    check_streams(network, Layout(options.root))
    with claimed(options.root, network):
        session = spark or spark_session(
            f"floodway-{network.name}", master=options.master or LOCAL_MASTER, conf=options.settings or {}
        )
        try:
            register(session)
            options.on_start()
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
        self.target = options.target_for(network).seconds
        self.parts = fragments_of(network, options.nodes)
        save_network(options.root, network)
        kept = retention_of(options)
        retaining = None if kept is None else run_retaining(network, self.layout, kept)
        self.loop = SteeringLoop(
            spark,
            network,
            _steering(network, options),
            self.parts,
            self.layout,
            LoopOptions(options, retaining),
            on_costs=self._replan,
        )
        self.record = self.loop.record

    def to_end(self) -> RunReport:
        with Feeder(self.network, self.layout, self.options.feeds) as feeder:
            self.loop.start(self.loop.clock.now())
            try:
                self._await_start()
                feeder.start()
                self._measure(feeder)
                feeder.stop()
                self._drain()
            finally:
                self.loop.stop()
        report = self._report()
        save_report(self.options.root, report.to_dict())
        return report

    def _await_start(self) -> None:
        """Until the queries read: what is fed while they start would all be in the first batch, and late."""
        end = self.loop.clock.now() + START_SECONDS
        while not (self.loop.started or self.options.ended.is_set()) and (now := self.loop.clock.now()) < end:
            self.loop.tick(now)
            time.sleep(TICK_SECONDS)

    def _measure(self, feeder: Feeder) -> None:
        self.record.begin(self.loop.clock.now(), self.loop.arrived)
        end = self.loop.clock.now() + self.options.seconds
        settled = False
        while (now := self.loop.clock.now()) < end and not self.options.ended.is_set():
            feeder.check()
            steered = self.loop.tick(now)
            if not settled and now - self.record.started >= self.options.settle_seconds:
                settled = True
                self.record.settle(now, self.loop.arrived)
            status = self.loop.status(self.target, steered)
            write_status(self.layout.store, status)
            self.options.progress(status)
            time.sleep(max(0.0, TICK_SECONDS - (self.loop.clock.now() - now)))
        self.record.end(self.loop.clock.now(), self.loop.arrived)

    def _drain(self) -> None:
        """Let the queries finish what waits, as long as a protected job needs; more is left to a restart."""
        end = self.loop.clock.now() + DRAIN_TARGETS * self.target
        while (now := self.loop.clock.now()) < end and not self.loop.idle:
            self.loop.tick(now)
            time.sleep(TICK_SECONDS)

    def _replan(self, corrected: Network) -> None:
        if self.options.replan:
            self.loop.steering.plan_with(_planner(corrected, self.options))

    def _report(self) -> RunReport:
        found = score_of(self.network, self.record)
        control = self.loop.steering.control.values()
        fold = self.loop.ledger.fold()
        return RunReport(
            counts=fold.total,
            differences=tuple(fold.differences()),
            latency=self.record.latencies().latency(self.target),
            score=found.score,
            optimum=found.optimum,
            nominal_optimum=found.nominal_optimum,
            load=found.load,
            throughput=found.throughput,
            rates=self.record.rates(),
            capacity_scale=found.capacity_scale,
            measured_seconds=self.record.measured_seconds,
            mode=self.loop.mode,
            unreachable=any(decision.unreachable for decision in control),
            floor_seconds=max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
            costs=self.loop.refining.costs() if self.loop.refining else {},
            selectivities=self.loop.refining.selectivities() if self.loop.refining else {},
            points=tuple(self.record.points),
            deadlines=self.loop.deadlines.to_dict(self.loop.ledger.lines()),
        )


def _planner(network: Network, options: RunOptions) -> Planner:
    return make_planner(
        network,
        options.planner or "exact",
        objective=options.objective,
        epsilon=options.epsilon,
        headroom=options.headroom,
    )


def _steering(network: Network, options: RunOptions) -> Steering:
    target = options.target_for(network)
    return Steering(
        _planner(network, options),
        fragments_of(network, options.nodes),
        target_seconds=target.seconds,
        quantile=target.quantile,
        controller=options.controller,
        drop=options.drop,
    )
