"""A percentile as the target of the one line, on real Spark, under Poisson and self-similar load."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from floodway.simulation.arrivals import Times, poisson, self_similar
from scripts.kafka_broker import Broker
from tests.kafka.live_job import BLOCK, CAPACITY, LiveJob
from tests.patience import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timing]

TARGET_SECONDS, OVERLOAD = 3.0, 2.0
SETTLING_SECONDS, SECONDS = 40.0, 140.0


@pytest.mark.parametrize("arrivals", [poisson, self_similar])
def test_95_of_100_results_are_in_time_at_twice_the_capacity(
    spark: SparkSession, broker: Broker, tmp_path: Path, arrivals: Callable[..., Times]
) -> None:
    times = arrivals(OVERLOAD * CAPACITY / BLOCK, 2 * SECONDS, np.random.default_rng(20_261_118))
    gaps = np.diff(times) / np.diff(times).mean()
    target = f"p95 < {TARGET_SECONDS:g}s"
    job = LiveJob(spark, broker, tmp_path, "percentile", gaps=cycle(gaps.tolist()), target_latency=target)
    try:
        job.warm_up()
        job.rate, begin = OVERLOAD * CAPACITY, time.time()
        wait_until(lambda: job.results[-1].seconds - begin > SECONDS, "enough results")
    finally:
        job.stop()
    latencies = [one.latency for one in job.results if one.seconds - begin > SETTLING_SECONDS]
    p95, mean = float(np.quantile(latencies, 0.95)), float(np.mean(latencies))
    print(f"\n{arrivals.__name__}: p95 {p95:.2f} s, mean {mean:.2f} s, {len(latencies)} results")
    assert job.dropped > 0
    assert p95 == pytest.approx(TARGET_SECONDS, rel=0.1)
