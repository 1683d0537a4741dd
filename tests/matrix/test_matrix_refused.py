"""Where Spark runs listeners on its server, a shed in the client is refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import floodway
from floodway.errors import InputError


def test_a_shed_through_connect_of_3_5_is_refused(any_spark: SparkSession, folder: Path) -> None:
    source = any_spark.readStream.format("rate").load()
    shed = floodway.shed("clicks", target_latency="2s", state_dir=str(folder))
    with pytest.raises(InputError, match=r"through Spark Connect 3\.5.*Use a Classic session, or Spark 4\.0 or later"):
        source.transform(shed)
