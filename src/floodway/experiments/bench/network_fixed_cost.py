"""What a micro-batch of a network costs before its first tuple: the shop's network, one tuple a stream in every batch.

The peer is the same work as somebody would write it by hand who needs no drops, counts or ledger: both streams in one
query, and in `foreachBatch` one function of Python that waits for every operator and appends to the three logs. Both
queries run in one session, in turns; Spark's own progress says where the time of a batch goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import BenchError, Frame, Workbench, as_dict, workbench
from floodway.experiments.result import Progress
from floodway.job.decision import JobDecision, StreamDecision, write_decision
from floodway.job.ledger.ledger import Ledger
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.fragment_query import FragmentQuery
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import committed_batches
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import create_sink_logs
from floodway.spark.query.python_pass.steps import busy_wait
from floodway.units import PPM

GOAL_SECONDS = 0.3
SCHEMA = "value double"
PATHS = {"live": ("enrich", "dashboard"), "invoices": ("enrich", "billing"), "revenue": ("settle",)}
PARTS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
_WARM, _PATIENCE_SECONDS = 3, 120.0
# As in examples/networks/shop.yaml.
SHOP = """
version: 1
name: shop
streams:
  clicks: {max_rate: 400}
  orders: {max_rate: 500}
nodes:
  shop: {cpu: 1.0}
operators:
  enrich: {node: shop, from: clicks, kind: delay, cost: 0.0005}
  dashboard: {node: shop, from: enrich, kind: delay, cost: 0.0005}
  billing: {node: shop, from: enrich, kind: delay, cost: 0.0025}
  settle: {node: shop, from: orders, kind: delay, cost: 0.0012}
outputs:
  live: {from: dashboard, weight: 1}
  invoices: {from: billing, weight: 1}
  revenue: {from: settle, weight: 3}
"""


@dataclass(frozen=True)
class Timed:
    """Batches of one query: Spark's durations in milliseconds, and how many Spark jobs it ran for them."""

    durations: list[dict[str, float]]
    jobs: int

    def median_ms(self, part: str = "triggerExecution") -> float:
        """Of the median batch."""
        return median(one.get(part, 0.0) for one in self.durations)


def fixed_cost(*, long: bool, progress: Progress) -> BenchResult:
    """Milliseconds of a batch of one tuple a stream; and of one that drops both."""
    network = parse_network(SHOP)
    turns, batches = (6, 20) if long else (3, 12)
    kinds: dict[str, tuple[Callable[[Workbench, Network], _Running], int]] = {
        "ours": (_ours, PPM),
        "peer": (_by_hand, PPM),
        "empty": (_ours, 0),
    }
    found: dict[str, list[Timed]] = {kind: [] for kind in kinds}
    with workbench("bench-network") as bench:
        for turn in range(turns + 1):
            for kind, (start, keep_ppm) in kinds.items():
                timed = _timed(start(bench, network), keep_ppm, batches)
                if turn:  # until Spark's own code is compiled, everything takes twice as long
                    found[kind].append(timed)
            progress((turn + 1) / (turns + 1))
    ours, peer, empty = (
        Timed([one for timed in found[kind] for one in timed.durations], sum(timed.jobs for timed in found[kind]))
        for kind in kinds
    )
    return BenchResult(
        id="network-fixed-cost",
        ours=rounded(ours.median_ms()),
        peer=rounded(peer.median_ms()),
        ratio=rounded(ours.median_ms() / peer.median_ms()),
        goal=f"ours <= {GOAL_SECONDS * 1e3:g} ms",
        holds=ours.median_ms() <= GOAL_SECONDS * 1e3,
        unit="ms a micro-batch",
        detail={
            "peer": "both streams in one query, one function of Python by hand, no drops, counts or ledger",
            "batches of each": len(ours.durations),
            "a batch that drops all": rounded(empty.median_ms()),
            "ours, by part": {part: ours.median_ms(part) for part in PARTS},
            "peer, by part": {part: peer.median_ms(part) for part in PARTS},
            "Spark jobs a batch": {"ours": ours.jobs / len(ours.durations), "peer": peer.jobs / len(peer.durations)},
        },
    )


@dataclass(frozen=True)
class _Running:
    """A query that runs: where its streams and its checkpoint are, what it is in Spark, how to stop it."""

    layout: RunLayout
    network: Network
    checkpoint: Path
    running: Any
    stop: Callable[[], None]
    spark: Any


def _ours(bench: Workbench, network: Network) -> _Running:
    layout = _streams(bench, network)
    (fragment,) = fragments(network, "shop")
    query = FragmentQuery(bench.spark, network, fragment, layout, Ledger(layout.store), lambda report: None)
    create_sink_logs([query], network, layout)
    query.start(wait_seconds=_PATIENCE_SECONDS)
    (running,) = (one for one in bench.spark.streams.active if one.name == query.name)
    return _Running(layout, network, query.checkpoint, running, query.stop, bench.spark)


def _by_hand(bench: Workbench, network: Network) -> _Running:
    layout = _streams(bench, network)
    costs = {name: operator.cost or 0.0 for name, operator in network.operators.items()}
    logs = {output: create_log(layout.output(network, output), SCHEMA).path for output in network.outputs}
    frames = [
        bench.stream(Path(layout.stream(network, name)), decision=str(layout.decision)).selectExpr(
            f"'{name}' AS stream", "value", "_arrival"
        )
        for name in network.streams
    ]
    passing = by_hand(costs, {output: str(path) for output, path in logs.items()})

    def write(batch: Frame, number: int) -> None:
        batch.mapInArrow(passing, "tuples long").toArrow()

    writer = frames[0].union(frames[1]).coalesce(1).writeStream.queryName(bench.fresh("by-hand").name)
    checkpoint = bench.fresh("checkpoint")
    running = writer.option("checkpointLocation", str(checkpoint)).foreachBatch(write).start()
    return _Running(layout, network, checkpoint, running, running.stop, bench.spark)


def by_hand(
    costs: Mapping[str, float], logs: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The shop's operators and sinks as one function."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch for batch in batches if batch.num_rows]
        if not rows:
            return
        table = pa.Table.from_batches(rows)
        streams = {name: table.filter(pc.equal(table.column("stream"), name)) for name in ("clicks", "orders")}
        busy_wait(costs["enrich"] * streams["clicks"].num_rows)
        for output, (*_, last) in PATHS.items():
            mine = streams["orders" if output == "revenue" else "clicks"]
            busy_wait(costs[last] * mine.num_rows)
            if mine.num_rows:
                with LogWriter(logs[output]) as writer:
                    writer.append(mine.select(["value"]), arrival=mine.column("_arrival").combine_chunks())
                yield pa.record_batch({"tuples": [mine.num_rows]})

    return run


def _streams(bench: Workbench, network: Network) -> RunLayout:
    layout = RunLayout(bench.fresh("run"))
    for name in network.streams:
        create_log(layout.stream(network, name), SCHEMA, stream=name)
    return layout


def _timed(query: _Running, keep_ppm: int, batches: int) -> Timed:
    """One tuple a stream, and again when the batch that took it is over."""
    streams = {name: StreamDecision(keep_ppm) for name in query.network.streams}
    write_decision(query.layout.decision, JobDecision(plan="p", mode="enforce", streams=streams))
    tuples = pa.record_batch({"value": [1.0]})
    writers = [LogWriter(query.layout.stream(query.network, name)) for name in query.network.streams]
    try:
        for _ in range(_WARM + batches):
            before = committed_batches(query.checkpoint)
            for writer in writers:
                writer.append(tuples)
            _await(query, before)
        finished = _finished(query.running.recentProgress)
        jobs = query.spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.running.runId))
    finally:
        for writer in writers:
            writer.close()
        query.stop()
    # Tuples of one round may come in two batches: all of them count.
    measured = finished[_WARM:]
    return Timed(measured, round(len(jobs) * len(measured) / len(finished)))


def _await(query: _Running, before: list[int]) -> None:
    """By the checkpoint: to ask Spark would take some of the time that is measured."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while committed_batches(query.checkpoint) == before:
        if not query.running.isActive or time.monotonic() > deadline:
            raise BenchError("a query of the benchmark ended or stopped", hint="Is the machine overloaded?")
        time.sleep(0.02)


def _finished(progress: Sequence[Any]) -> list[dict[str, float]]:
    """The durations of the batches that ran; a query that waits reports too."""
    return [item["durationMs"] for item in map(as_dict, progress) if "addBatch" in item["durationMs"]]
