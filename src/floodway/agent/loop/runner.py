"""Run a network's nodes in one process on real Spark, for a given time, and report: `floodway run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from floodway.agent.loop.classes import by_target
from floodway.agent.loop.feeds import Feed, Feeder
from floodway.agent.loop.record import RunReport, score_of
from floodway.agent.loop.run_files import claimed, save_network, save_report
from floodway.agent.loop.sizes import MeasuredSizes
from floodway.agent.loop.steering import Steering
from floodway.agent.loop.steering_loop import TICK_SECONDS, LoopOptions, RunError, SteeringLoop, fragments_of
from floodway.job.options.options import JobOptions
from floodway.job.status.status import Status, write_status
from floodway.network.model import Network
from floodway.spark.query.fragment_windows import FragmentWindows, drop_shapes, fragment_windows, timeless_streams
from floodway.spark.query.key_drops import key_drops
from floodway.spark.query.layout import RunLayout
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
    steerings(network, options)  # refuses what is wrong before Spark starts
    key_drops(network, options, _windows(network, options))
    check_streams(network, RunLayout(options.root))
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
        self.layout = RunLayout(options.root)
        self.target = options.target_for(network).seconds
        self.parts = fragments_of(network, options.nodes)
        save_network(options.root, network)
        kept = retention_of(options)
        retaining = None if kept is None else run_retaining(network, self.layout, kept)
        windows = _windows(network, options)
        self.loop = SteeringLoop(
            spark,
            network,
            steerings(network, options),
            self.parts,
            self.layout,
            LoopOptions(options, retaining, windows=windows, keys=key_drops(network, options, windows)),
            on_costs=self._take_costs,
            on_sizes=self._take_sizes,
        )
        self._planned = network
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

    def _take_costs(self, corrected: Network) -> None:
        if self.options.replan:
            self._planned = corrected
            self._replan()

    def _take_sizes(self, sizes: MeasuredSizes) -> None:
        if self.options.replan is not False and self.network.has_fixed_limits:
            self._replan()

    def _replan(self) -> None:
        """Plan with the costs that were taken, and with sizes as they are measured."""
        planned = self.loop.sizes.measured().applied(self._planned)
        self.loop.steering.plan_with(self.options.planner_of(planned))

    def _report(self) -> RunReport:
        sized = self.loop.sizes.measured().applied(self.network)
        found = score_of(sized, self.record)
        control = self.loop.steering.control.values()
        fold = self.loop.ledger.fold()
        return RunReport(
            counts=fold.total,
            differences=tuple(fold.differences()),
            latency=self.record.latencies().latency(self.target),
            latencies=self.loop.output_latencies.measured(),
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
            bandwidth=self.record.bandwidth(sized),
            memory=self.record.memory(),
            points=tuple(self.record.points),
            deadlines=self.loop.deadlines.to_dict(self.loop.ledger.lines()),
        )


def steerings(network: Network, options: RunOptions) -> list[Steering]:
    """One for every class of queries; all together with a buffer, which has one queue of work."""
    planner, parts = options.planner_of(network), fragments_of(network, options.nodes)
    classes = by_target(parts, lambda outputs: options.target_for(network, outputs))
    if options.buffering is not None:
        classes = [(options.target_for(network), parts)]
    return [
        Steering(
            planner,
            fragments,
            target,
            options,
            windowed=drop_shapes(_windows(network, options)),
        )
        for target, fragments in classes
    ]


def _windows(network: Network, options: RunOptions) -> dict[str, FragmentWindows]:
    timeless = timeless_streams(network, options)
    return fragment_windows(network, network, fragments_of(network), RunLayout(options.root).windows, timeless)
