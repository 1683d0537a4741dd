"""The tail of a fragment on real Spark: every drop on a branch is counted, also of one that is alone in its query."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.query.fragments import fragments
from floodway.spark.query.sinks import Written
from floodway.spark.query.tail import run_tail

pytestmark = pytest.mark.spark

NETWORK = Network(
    "n",
    {"s": Stream("s")},
    {"A": Node("A")},
    {
        "plain": Operator("plain", "A", ("s",)),
        "window": Operator("window", "A", ("s",), OperatorKind.AGGREGATE, window=1.0),
    },
    {"q": Output("q", "plain"), "w": Output("w", "window")},
)


def test_a_branch_whose_siblings_are_another_querys_is_counted(spark: SparkSession) -> None:
    (main,) = [fragment for fragment in fragments(NETWORK, "A") if not fragment.streaming]
    frame = spark.range(0, 1000, 1, 1).select(
        "id", fn.col("id").alias("_id"), fn.lit(1.0).alias("_weight"), fn.lit(400_000).alias("_keep:s->plain")
    )

    def write(frames: Mapping[str, DataFrame]) -> dict[str, Written]:
        counts = {sink: df.count() for sink, df in frames.items()}
        return {sink: Written(np.array([0]), np.array([count])) for sink, count in counts.items()}

    result = run_tail(NETWORK, main, {"s": frame}, write)
    offered, kept = result.branches["s->plain"]
    assert offered == 1000 and kept == result.delivered["q"].rows
    assert 300 < kept < 500
