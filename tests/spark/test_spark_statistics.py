"""Costs and selectivities of whole networks on real Spark: against the full pipeline, known shares, and refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from examples.pipelines.json_clicks import PURCHASES, clicks
from floodway.errors import InputError
from floodway.network.file import load_network, network_to_yaml, parse_network
from floodway.network.model import Network
from floodway.spark.log import LogWriter, create_log
from floodway.spark.measure.calibrate import Effort, Input, measure_cost, steady_plans
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.measure.samples import SampleError, load_samples
from floodway.spark.measure.statistics import MeasureError, Statistics, measure_network
from floodway.spark.query.operators import apply_operator

pytestmark = pytest.mark.spark

JSON_CLICKS = Path(__file__).parents[2] / "examples" / "networks" / "json-clicks.yaml"
SHORT = Effort(seconds=0.3, repeats=2)
LONG = Effort(seconds=1.5, repeats=3, most_tuples=400_000)
CHEAP = Effort(seconds=0.001, repeats=1, most_tuples=2000)
"""For tests that ask for selectivities: a cost from a few tuples, which none of them reads."""
HEAD = "version: 1\nstreams: {s: {max_rate: 1000}, t: {max_rate: 1000}}\nnodes: {A: {cpu: 1}}\n"


def matching(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs with the same last digit of their ids: one pair in ten."""
    other = right.select((fn.col("id") % 10).alias("digit"), fn.col("id").alias("other"))
    return left.withColumn("digit", fn.col("id") % 10).join(other, "digit")


def nothing(df: DataFrame) -> DataFrame:
    return df.filter("id < 0")


def broken(df: DataFrame) -> DataFrame:
    return df.select("no_such_column")


def measured(spark: SparkSession, network: Network, effort: Effort = CHEAP, tuples: int = 2000) -> Statistics:
    samples = load_samples(spark, network, path=None, tuples=tuples, rng=np.random.default_rng(7))
    return measure_network(spark, network, samples, effort=effort)


@pytest.fixture(scope="module")
def click_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "clicks"
    create_log(path, "value string")
    with LogWriter(path) as writer:
        rows = clicks(20_000, 2000.0, datetime(2026, 1, 1, tzinfo=UTC), np.random.default_rng(7))
        writer.append(rows, 0)
    return path


@pytest.mark.slow
@pytest.mark.timing
def test_json_filter_and_window_count_add_up_to_the_whole_pipeline(spark: SparkSession, click_log: Path) -> None:
    """Parts against the whole, and each part against a longer run of its own, in CPU time.

    Rounds are interleaved and the least of each is taken: what else runs on the machine only ever adds.
    """
    network, meter = load_network(JSON_CLICKS), CpuMeter(spark)
    samples = load_samples(spark, network, path=click_log, tuples=20_000, rng=np.random.default_rng(7))
    source = Input(samples["clicks"], 20_000)

    def pipeline(frames: list[DataFrame]) -> DataFrame:
        frame = frames[0]
        for name in network.order:
            frame = apply_operator(network.operators[name], [frame])
        return frame

    rounds, wholes = [], []
    for _ in range(2):
        rounds.append(measure_network(spark, network, samples, effort=SHORT).operators)
        with steady_plans(spark):
            wholes.append(measure_cost(meter, pipeline, [source], SHORT).cost)
    cost = {name: min(found[name].cost for found in rounds) for name in network.order}
    share = {name: item.selectivity for name, item in rounds[0].items()}
    parts, whole = cost["parse"] + cost["purchases"] + share["purchases"] * cost["counts"], min(wholes)
    print({name: f"{each:.3g}" for name, each in cost.items()}, f"parts {parts:.3g}, whole {whole:.3g}")
    assert parts == pytest.approx(whole, rel=0.25)

    assert share["parse"] == 1.0
    assert share["purchases"] == pytest.approx(PURCHASES, rel=0.05)
    # 8 shops a second, from 2000 clicks of which a fifth are purchases.
    assert share["counts"] == pytest.approx(8 / (2000 * share["purchases"]), rel=0.05)
    filled = parse_network(network_to_yaml(Statistics(rounds[0]).applied(network)))
    assert all(operator.cost and operator.selectivity for operator in filled.operators.values())

    frame = samples["clicks"]
    with steady_plans(spark):
        for name in network.order:
            operator = network.operators[name]
            item = Input(frame, frame.count())
            build = partial(apply_operator, operator)
            dedicated = min(measure_cost(meter, build, [item], LONG).cost for _ in range(2))
            print(f"{name}: {cost[name]:.3g} against {dedicated:.3g} in a long run")
            # Operators of some 50 ns are told to 2% of the pipeline, which is what a plan can see of them.
            assert cost[name] == pytest.approx(dedicated, rel=0.25, abs=0.02 * parts)
            frame = apply_operator(operator, [frame]).coalesce(1).localCheckpoint()


DELAYS = (
    "version: 1\nstreams: {s: {max_rate: 1000}}\nnodes: {A: {cpu: 1}}\n"
    "operators:\n  a: {node: A, from: s, kind: delay, cost: 0.0008, selectivity: 0.5}\n"
    "  b: {node: A, from: a, kind: delay, cost: 0.002, selectivity: 1.5}\noutputs: {q: {from: b}}"
)


@pytest.mark.slow
@pytest.mark.timing
def test_delays_cost_what_they_burn(spark: SparkSession) -> None:
    found = measured(spark, parse_network(DELAYS), Effort(seconds=0.5, repeats=2)).operators
    assert found["a"].cost == pytest.approx(0.0008, rel=0.15) and found["b"].cost == pytest.approx(0.002, rel=0.15)


def test_delays_with_selectivity_are_found_and_their_definition_kept(spark: SparkSession) -> None:
    network = parse_network(DELAYS)
    found = measured(spark, network).operators
    assert found["a"].selectivity == pytest.approx(0.5, abs=0.05)
    assert found["b"].selectivity == pytest.approx(1.5, abs=0.08)
    assert found["b"].to_dict()["cost_ratio"] == pytest.approx(found["b"].cost / 0.002)
    assert Statistics(found).applied(network) == network


def test_a_join_relative_to_its_windows_and_a_union(spark: SparkSession) -> None:
    network = parse_network(
        HEAD + "operators:\n"
        f"  pairs: {{node: A, from: [s, t], kind: join, windows: [100, 50], run: '{__name__}:matching'}}\n"
        "  both: {node: A, from: [s, t], kind: union, selectivity: measure}\n"
        "outputs: {q: {from: pairs}, r: {from: both}}"
    )
    found = measured(spark, network, tuples=500).operators
    assert found["pairs"].selectivity == pytest.approx(0.1)
    assert found["both"].selectivity == 1.0 and found["both"].sampled == 1000
    assert Statistics(found).applied(network).operators["pairs"].selectivity == pytest.approx(0.1)


def test_a_sample_shorter_than_a_window_is_noted(spark: SparkSession) -> None:
    text = (
        "version: 1\nstreams: {s: {max_rate: 1000}}\nnodes: {A: {cpu: 1}}\n"
        "operators: {c: {node: A, from: s, kind: aggregate, window: 60s, slide: 30s, selectivity: measure}}\n"
        "outputs: {q: {from: c}}"
    )
    (short,) = measured(spark, parse_network(text)).operators.values()
    assert "no complete window" in short.note
    (sliding,) = measured(spark, parse_network(text.replace("60s", "400ms").replace("30s", "100ms"))).operators.values()
    assert sliding.note == "" and sliding.selectivity == pytest.approx(0.01, rel=0.02)  # ten windows a second


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("broken", r"operators\.x failed on the sample: .*no_such_column"),
        ("absent", "has no function 'absent'"),
        ("nothing", r"operators\.y has nothing to be measured on: no tuple of the sample gets past x"),
    ],
)
def test_an_operator_that_cannot_be_measured_is_named(spark: SparkSession, run: str, message: str) -> None:
    network = parse_network(
        HEAD + f"operators:\n  x: {{node: A, from: s, run: '{__name__}:{run}'}}\n"
        "  y: {node: A, from: x}\n  z: {node: A, from: t}\noutputs: {q: {from: y}, r: {from: z}}"
    )
    with pytest.raises((MeasureError, InputError), match=message):
        measured(spark, network, tuples=200)


def test_samples_come_from_where_they_are_told_to(spark: SparkSession, click_log: Path, tmp_path: Path) -> None:
    network, rng = load_network(JSON_CLICKS), np.random.default_rng(7)
    frame = load_samples(spark, network, path=click_log.parent, tuples=300, rng=rng)["clicks"]
    assert frame.columns == ["value", "_id", "_arrival", "_weight"]
    assert [row._id for row in frame.select("_id").collect()] == list(range(19_700, 20_000))
    clicks_stream = network.streams["clicks"]
    own = replace(network, streams={"clicks": replace(clicks_stream, log=str(click_log))})
    assert load_samples(spark, own, path=None, tuples=50, rng=rng)["clicks"].count() == 50
    kafka = replace(network, streams={"clicks": replace(clicks_stream, log="kafka://localhost:9092/clicks")})
    create_log(tmp_path / "empty", "value string")
    for wrong, path, message in (
        (network, tmp_path / "gone", "no sample at"),
        (network, tmp_path, "no log of stream clicks in"),
        (network, tmp_path / "empty", "is empty"),
        (kafka, None, "is on Kafka"),
        (
            parse_network(HEAD + "operators: {u: {node: A, from: [s, t], kind: union}}\noutputs: {q: {from: u}}"),
            click_log,
            "is one log, and the network has 2 streams",
        ),
    ):
        with pytest.raises(SampleError, match=message):
            load_samples(spark, wrong, path=path, tuples=10, rng=rng)
    with pytest.raises(InputError, match="a sample of 0 tuples"):
        load_samples(spark, network, path=None, tuples=0, rng=rng)
