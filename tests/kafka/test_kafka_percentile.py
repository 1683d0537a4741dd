"""A percentile as the target of the one line, on real Spark and under Poisson load."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from pyspark.sql import SparkSession

from scripts.kafka_broker import Broker
from tests.kafka.live_job import CAPACITY, LiveJob
from tests.patience import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timing]

TARGET_SECONDS = 3.0
SETTLING_SECONDS, SECONDS = 40.0, 140.0


def test_95_of_100_results_are_in_time_at_twice_the_capacity(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    job = LiveJob(
        spark, broker, tmp_path, "percentile", rng=Random(20_261_118), target_latency=f"p95 < {TARGET_SECONDS:g}s"
    )
    try:
        job.warm_up()
        job.rate, begin = 2.0 * CAPACITY, time.time()
        wait_until(lambda: job.results[-1].seconds - begin > SECONDS, "enough results")
    finally:
        job.stop()
    latencies = [one.latency for one in job.results if one.seconds - begin > SETTLING_SECONDS]
    p95, mean = float(np.quantile(latencies, 0.95)), float(np.mean(latencies))
    print(f"\np95 {p95:.2f} s, mean {mean:.2f} s, {len(latencies)} results")
    assert job.dropped > 0
    assert p95 == pytest.approx(TARGET_SECONDS, rel=0.1)
