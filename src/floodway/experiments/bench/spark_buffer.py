"""Tuples processed within their deadline, on real Spark: the buffer (EDF, PID, cleaner) against COB, which has none.

Two streams with different deadlines, in bursts around the capacity of one core: 1.9 times what it can do for five
seconds, 0.3 times for the next five. Both managers get the same arrivals to the tuple, one run after the other, with
operators that busy-wait. COB sheds in a burst what the buffer keeps for the lull after it, and processes what is late
already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.buffering.options import Manager
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import NARROW, BenchError, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.job.options.values import Target
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.audit.run import audit
from floodway.spark.query.layout import RunLayout

COST_SECONDS = 0.002
DEADLINES = {"urgent": 4.0, "patient": 16.0}
SHARES = {"urgent": 0.6, "patient": 0.4}
HALF_SECONDS = 5.0
HIGH, LOW = 1.9, 0.3
WARM_SECONDS = 6.0
GOAL = 1.1


def against_cob(*, long: bool, progress: Progress) -> BenchResult:
    """In-time counts of both managers, and what each dropped for which reason."""
    seconds = 100.0 if long else 40.0
    with workbench("bench-buffer") as bench:
        _run(bench, "cwb", WARM_SECONDS)
        progress(0.2)
        ours = _run(bench, "cwb", seconds)
        progress(0.6)
        peer = _run(bench, "cob", seconds)
        progress(1.0)
    met, without = in_time(ours), in_time(peer)
    if without == 0:
        raise BenchError("the peer processed nothing in time", hint="Run on a quieter machine, or with --long")
    return BenchResult(
        id="spark-buffer",
        ours=met,
        peer=without,
        ratio=rounded(met / without),
        goal=f"ours >= {GOAL} × peer",
        holds=met >= GOAL * without,
        unit="tuples in time",
        detail={
            "peer": "COB: Tu's law sheds at the input, first come first served, no cleaner",
            "offered (tuples)": sum(ours.to_dict()["offered"].values()),
            "miss ratio": {"ours": _miss_ratio(ours), "peer": _miss_ratio(peer)},
            **{f"ours, {name}": dict(seen) for name, seen in ours.deadlines.items()},
            **{f"peer, {name}": dict(seen) for name, seen in peer.deadlines.items()},
            "ours, dropped": ours.to_dict()["dropped"],
            "peer, dropped": peer.to_dict()["dropped"],
            "measured (s)": seconds,
        },
    )


def in_time(report: RunReport) -> int:
    """Results within their deadline, of all streams."""
    return sum(int(seen["in_time"]) for seen in report.deadlines.values())


def _miss_ratio(report: RunReport) -> float:
    late = sum(int(seen["late"]) for seen in report.deadlines.values())
    return rounded(late / max(1, late + in_time(report)))


def _run(bench: Workbench, manager: Manager, seconds: float) -> RunReport:
    root = bench.fresh(manager)
    network = two_classes(root.name)
    options: dict[str, Any] = {"seconds": seconds, "root": root, "settle_seconds": seconds / 2, "target": Target(2.0)}
    report = run_network(network, RunOptions(feeds=_feeds(), buffer=manager, **options), bench.spark)
    differences = (*report.differences, *audit(network, RunLayout(Path(root))).differences)
    if differences:
        raise BenchError(f"the ledger of {manager} does not reconcile: {differences[0]}", hint="This is a defect")
    return report


def two_classes(node: str) -> Network:
    """Two streams, two chains, one core."""
    delay = OperatorKind.DELAY
    return Network(
        "bench-buffer",
        {name: Stream(name, 1.0 / COST_SECONDS, schema=NARROW, deadline=DEADLINES[name]) for name in DEADLINES},
        {node: Node(node)},
        {f"work-{name}": Operator(f"work-{name}", node, (name,), delay, cost=COST_SECONDS) for name in DEADLINES},
        {f"q-{name}": Output(f"q-{name}", f"work-{name}") for name in DEADLINES},
    )


def _feeds() -> dict[str, Feed]:
    feeds = {}
    for name, share in SHARES.items():
        rates = (level * share / COST_SECONDS for level in (HIGH, LOW))
        pair = ",".join(f"{HALF_SECONDS:g}:{rate:g}" for rate in rates)
        feeds[name] = Feed(options=("--profile", "steps", "--steps", ",".join([pair] * 50)))
    return feeds
