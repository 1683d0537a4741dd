"""`floodway.shed` on real Spark: one line keeps an overloaded job at its latency target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodway.experiments.bench.spark_common import Workbench
from floodway.experiments.bench.spark_limit import COST_SECONDS, TARGET_SECONDS, measured
from floodway.spark.source import register

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.timing, pytest.mark.slow]


def test_one_line_keeps_the_mean_latency_at_the_target(spark: Session, tmp_path: Path) -> None:
    register(spark)
    found = measured(Workbench(spark, tmp_path), 2.0 / COST_SECONDS, 24.0, None)
    assert found["mean latency"] == pytest.approx(TARGET_SECONDS, rel=0.1), found
    assert found["tuples/s"] < 1.0 / COST_SECONDS
