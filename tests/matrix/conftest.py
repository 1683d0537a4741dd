"""A session of whatever Spark is installed: Classic, or through Connect if FLOODWAY_TEST_SESSION says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def any_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run."""
    builder = SparkSession.builder.appName("floodway-matrix")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    if os.environ.get("FLOODWAY_TEST_SESSION") == "connect":
        session = builder.remote("local[2]").getOrCreate()
    else:
        session = builder.master("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an input for one query."""
    (tmp_path / "in").mkdir()
    return tmp_path
