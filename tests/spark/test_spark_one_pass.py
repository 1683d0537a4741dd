"""Operators in one pass of Python against the same operators one by one in Spark: the same tuples, weights, counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.decision import JobDecision, write_decision
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.network.file import parse_network
from floodway.network.model import Arc, Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.drops import arc_drop, arc_kept, hash_ppm
from floodway.spark.query.fragment_query import FragmentQuery, FragmentReport
from floodway.spark.query.fragments import Fragment, fragments, inner_arcs
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import create_sink_logs
from floodway.spark.query.operators import apply_chain, apply_operator
from floodway.spark.query.python_pass.one_pass import one_pass
from floodway.spark.query.python_pass.steps import chains, slots_ppm
from floodway.spark.query.sinks import Appender, Written, public_columns
from floodway.spark.query.tail import run_tail, sink_arcs, tagged, untagged
from floodway.spark.source import register
from tests.patience import wait_until

pytestmark = pytest.mark.spark

TUPLES = 400
WAIT = 1e-7
"""A cost that makes an operator one of Python's, and is over at once."""
Rows = Counter[tuple[object, ...]]


def test_slots_are_those_of_spark(spark: SparkSession) -> None:
    rng = np.random.default_rng(5)
    ids = np.concatenate([rng.integers(-(2**63), 2**63 - 1, 200), np.arange(-3, 60)])
    frame = spark.createDataFrame(pa.table({"_id": ids}))
    texts = ["ärger->ß", *(("abcdefghij" * 9)[:length] for length in range(70))]
    found = frame.select(*[hash_ppm(frame, text).alias(f"c{at}") for at, text in enumerate(texts)]).toArrow()
    for at, text in enumerate(texts):
        assert found.column(f"c{at}").to_numpy().tolist() == slots_ppm(ids, text).tolist(), text


def random_network(seed: int) -> Network:
    """Two streams, and default operators that read any of what is before them: chains, splits, several sinks each."""
    rng = random.Random(seed)
    producers = ["s1", "s2"]
    operators = {}
    for at in range(rng.randint(3, 7)):
        name = f"o{at}"
        kind = rng.choice([OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.DELAY])
        source = producers[at] if at < 2 else rng.choice(producers)
        selectivity, cost = rng.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.6, 2.0]), rng.choice([None, WAIT, WAIT])
        operators[name] = Operator(name, "A", (source,), kind, cost=cost, selectivity=selectivity)
        producers.append(name)
    read = {operator.inputs[0] for operator in operators.values()}
    ends = [name for name in operators if name not in read or rng.random() < 0.4]
    outputs = {f"q{at}": Output(f"q{at}", name) for at, name in enumerate(ends)}
    return Network(f"n{seed}", {s: Stream(s) for s in ("s1", "s2")}, {"A": Node("A")}, operators, outputs)


def heads_of(spark: SparkSession, network: Network, fragment: Fragment, seed: int) -> dict[str, DataFrame]:
    rng = random.Random(seed)
    keeps = {str(arc): rng.choice([0, 1, 300_000, 999_999, 1_000_000]) for arc in inner_arcs(network, fragment)}
    return {
        spec.name: spark.range(0, TUPLES, 1, 1).select(
            fn.col("id").alias(f"of_{spec.name}"),
            fn.concat(fn.lit("text "), "id").alias("text"),
            (fn.col("id") + 1000 * at).alias("_id"),
            fn.timestamp_micros(fn.col("id") * 1000).alias("_arrival"),
            (fn.lit(1.0) / 0.7).alias("_weight"),
            *(fn.lit(keep).cast("int").alias(f"_keep:{arc}") for arc, keep in keeps.items()),
        )
        for at, spec in enumerate(fragment.sources)
    }


def rows_of(table: pa.Table) -> Rows:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def one_by_one(
    network: Network, fragment: Fragment, heads: dict[str, DataFrame]
) -> tuple[dict[str, Rows], dict[str, tuple[int, int]]]:
    """The tail as Spark's own expressions have it: what every sink gets, and (offered, kept) of every branch."""
    made, counts = dict(heads), {}

    def on(arc: Arc) -> DataFrame:
        frame = made[arc.producer]
        if not network.is_split(arc.producer):
            return frame
        counts[str(arc)] = (frame.count(), frame.filter(arc_kept(frame, str(arc))).count())
        return arc_drop(frame, str(arc))

    for name in fragment.tail:
        made[name] = apply_operator(network.operators[name], [on(Arc(network.operators[name].inputs[0], name))])
    sinks = {sink: on(arc) for sink, arc in sink_arcs(network, fragment).items()}
    return {sink: rows_of(public_columns(frame).toArrow()) for sink, frame in sinks.items()}, counts


@pytest.mark.parametrize("seed", range(5))
def test_a_random_tail_gives_the_same_both_ways(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    network = random_network(seed)
    (fragment,) = fragments(network, "A")
    heads = heads_of(spark, network, fragment, seed)
    expected, counts = one_by_one(network, fragment, heads)
    assert any(rows for rows in expected.values())

    found: dict[str, Rows] = {}

    def collect(frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        written = {}
        for sink, frame in frames.items():
            table = public_columns(frame).toArrow()
            found[sink] = rows_of(table)
            written[sink] = Written(np.array([0]), np.array([table.num_rows]))
        return written

    in_parts = run_tail(network, fragment, heads, collect)
    assert found == expected and in_parts.branches == counts

    planned = one_pass(network, fragment, {name: head.schema for name, head in heads.items()})
    assert planned is not None
    batch = tagged(heads).coalesce(1)
    for sink, frame in untagged(batch, heads).items():
        assert frame.schema.names == heads[sink].schema.names
    paths: dict[str, Path | str] = {}
    for sink, arc in sink_arcs(network, fragment).items():
        shape = public_columns(made_of(network, heads, arc)).drop("_arrival")
        paths[sink] = tmp_path / sink
        create_log(tmp_path / sink, ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in shape.schema))
    at_once = planned.run(batch, Appender(paths, "query", 0))
    assert at_once.branches == counts and list(at_once.branches) == list(in_parts.branches)
    for sink, path in paths.items():
        assert logged(Path(path)) == expected[sink], sink
        assert at_once.delivered[sink].rows == expected[sink].total()


def made_of(network: Network, heads: dict[str, DataFrame], arc: Arc) -> DataFrame:
    """The head that an arc's tuples come from: default operators keep its columns."""
    producer = arc.producer
    while producer not in heads:
        producer = network.operators[producer].inputs[0]
    return heads[producer]


def logged(path: Path) -> Rows:
    """What a log holds, its arrivals last."""
    reader = LogReader(path)
    pieces = (piece for at, end in reader.end_positions().items() for piece in reader.read(at, 0, end))
    return Counter(tuple(row.values()) for piece in pieces for row in piece.to_pylist())


CHAIN = """
version: 1
name: chain
streams: {s: {}}
nodes: {A: {}}
operators:
  a: {node: A, from: s, cost: 1e-7, selectivity: 0.5}
  b: {node: A, from: a, cost: 1e-7}
  c: {node: A, from: b, cost: 1e-7, selectivity: 1.5}
  d: {node: A, from: c, cost: 1e-7}
  e: {node: A, from: c, cost: 1e-7}
outputs: {q1: {from: d}, q2: {from: e}}
"""


def test_a_chain_in_a_tail_of_several_parts_is_one_python_function(spark: SparkSession) -> None:
    network = parse_network(CHAIN)
    (fragment,) = fragments(network, "A")
    assert chains(network, fragment.tail) == [("a", "b", "c"), ("d",), ("e",)]
    heads = heads_of(spark, network, fragment, 1)
    plans: dict[str, str] = {}

    def explain(frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        plans.update((sink, frame._jdf.queryExecution().analyzed().toString()) for sink, frame in frames.items())
        return {}

    run_tail(network, fragment, heads, explain)
    assert {sink: plan.count("MapInArrow") for sink, plan in plans.items()} == {"q1": 2, "q2": 2}


def test_inputs_of_one_operator_that_do_not_fit_together_are_not_united(spark: SparkSession) -> None:
    left, right = (
        spark.range(5).selectExpr(f"{value} AS value", "id AS _id", "timestamp_micros(id) AS _arrival")
        for value in ("id", "named_struct('a', id)")
    )
    join = Operator("j", "A", ("s1", "s2"), OperatorKind.JOIN, windows=(2.0, 2.0))
    assert {"value", "s2_value"} <= set(apply_chain([join], [left, right]).columns)


def test_a_zones_chain_of_operators_before_its_aggregate_is_one_python_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    network = parse_network("""
version: 1
name: zone
streams: {s: {schema: "value bigint, event_time timestamp"}}
nodes: {A: {}}
operators:
  a: {node: A, from: s, cost: 1e-7, selectivity: 0.5}
  b: {node: A, from: a, cost: 1e-7}
  w: {node: A, from: b, kind: aggregate, window: 1}
outputs: {q: {from: w}}
""")
    layout = RunLayout(tmp_path)
    create_log(layout.stream(network, "s"), network.streams["s"].schema or "", stream="s")
    query = query_of(spark, network, layout, [])
    frame = query._streaming()
    assert frame._jdf.queryExecution().analyzed().toString().count("MapInArrow") == 1


def query_of(spark: SparkSession, network: Network, layout: RunLayout, reports: list[FragmentReport]) -> FragmentQuery:
    register(spark)
    (fragment,) = fragments(network, "A")
    return FragmentQuery(spark, network, fragment, layout, Ledger(layout.store), reports.append)


def test_a_batch_of_two_streams_and_three_logs_is_one_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    network = parse_network("""
version: 1
name: shop
streams: {clicks: {schema: "value bigint"}, orders: {schema: "price double, name string"}}
nodes: {A: {}}
operators:
  enrich: {node: A, from: clicks, kind: delay, cost: 1e-7}
  board: {node: A, from: enrich, kind: delay, cost: 1e-7}
  bill: {node: A, from: enrich, kind: delay, cost: 1e-7}
  settle: {node: A, from: orders, kind: delay, cost: 1e-7}
outputs: {live: {from: board}, invoices: {from: bill}, revenue: {from: settle}}
""")
    layout = RunLayout(tmp_path)
    rows = {
        "clicks": pa.table({"value": list(range(TUPLES))}),
        "orders": pa.table({"price": np.arange(TUPLES) / 2, "name": [f"n{at}" for at in range(TUPLES)]}),
    }
    for stream in rows:
        create_log(layout.stream(network, stream), network.streams[stream].schema or "", stream=stream)
    arcs = {"enrich->board": 600_000, "enrich->bill": 200_000}
    write_decision(layout.decision, JobDecision(plan="p", mode="enforce", arcs=arcs))
    reports: list[FragmentReport] = []
    query = query_of(spark, network, layout, reports)
    create_sink_logs([query], network, layout)
    query.start()
    try:
        for batches in (1, 2):
            for stream, table in rows.items():
                with LogWriter(layout.stream(network, stream)) as writer:
                    writer.append(table)
            wait_until(partial(has_all, reports, 2 * batches * TUPLES), told=query.failure)
        run_id = query.run_id
    finally:
        query.stop()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(run_id)
    assert len(jobs) == len(reports)
    delivered = Counter[str]()
    for line in (line for report in reports for line in report.lines if line.reason is Reason.DELIVERED):
        delivered[line.at] += line.kept
    ids = np.arange(2 * TUPLES)
    kept = {arc: int((slots_ppm(ids, arc) < keep).sum()) for arc, keep in arcs.items()}
    assert delivered == {"live": kept["enrich->board"], "invoices": kept["enrich->bill"], "revenue": 2 * TUPLES}


def test_sinks_that_are_no_logs_take_a_spark_job_each_and_are_counted_with_the_logs(
    spark: SparkSession, tmp_path: Path
) -> None:
    network = parse_network(f"""
version: 1
name: sinks
streams: {{clicks: {{schema: "value bigint"}}}}
nodes: {{A: {{}}}}
operators: {{work: {{node: A, from: clicks, cost: 1e-7}}}}
outputs:
  q1: {{from: work, sink: "parquet:{tmp_path}/q1"}}
  q2: {{from: work, sink: "json:{tmp_path}/q2"}}
  q3: {{from: work}}
""")
    layout = RunLayout(tmp_path / "run")
    create_log(layout.stream(network, "clicks"), "value bigint", stream="clicks")
    reports: list[FragmentReport] = []
    query = query_of(spark, network, layout, reports)
    create_sink_logs([query], network, layout)
    query.start()
    try:
        with LogWriter(layout.stream(network, "clicks")) as writer:
            writer.append(pa.table({"value": list(range(TUPLES))}))
        wait_until(partial(has_all, reports, TUPLES), told=query.failure)
        run_id = query.run_id
    finally:
        query.stop()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(run_id)) == 3 * len(reports)
    delivered = {line.at: line.kept for line in reports[0].lines if line.reason is Reason.DELIVERED}
    assert delivered == dict.fromkeys(["q1", "q2", "q3"], TUPLES)
    assert sorted(reports[0].delivered["q1"].arrival_ms) == sorted(reports[0].delivered["q3"].arrival_ms)


def has_all(reports: list[FragmentReport], tuples: int) -> bool:
    """Whether the streams have brought so many tuples."""
    lines = [line for report in reports for line in report.lines if line.at in ("clicks", "orders")]
    return sum(line.offered for line in lines) == tuples
