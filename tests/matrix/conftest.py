"""A session of whatever Spark is installed: Classic, or through Connect if FLOODWAY_TEST_SESSION says so.

FLOODWAY_TEST_SERVER_AHEAD is by how many seconds the clock of the Connect server is ahead of this process's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

CONNECT = os.environ.get("FLOODWAY_TEST_SESSION") == "connect"
REFUSED = CONNECT and pyspark.__version__.startswith("3.")
collect_ignore = ["test_matrix_shed.py" if REFUSED else "test_matrix_refused.py"]

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    # A test that is held up between two files is no query that waits for data.
    "spark.sql.streaming.noDataProgressEventInterval": "1d",
}
CLASSIC = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
"""What a Connect client cannot set."""


def server_clock(folder: Path) -> Mapping[str, str]:
    """The environment of a server whose clock is set."""
    ahead = float(os.environ.get("FLOODWAY_TEST_SERVER_AHEAD", "0"))
    if not ahead:
        return {}
    from floodway.experiments.chaos.clocks.set_clock import SetClock

    clock = SetClock(folder)
    clock.step(ahead)
    return clock.variables


@pytest.fixture(scope="session")
def any_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run."""
    builder = SparkSession.builder.appName("floodway-matrix")
    for key, value in (SETTINGS if CONNECT else {**SETTINGS, **CLASSIC}).items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as environ:
        for key, value in server_clock(tmp_path_factory.mktemp("clock")).items():
            environ.setenv(key, value)
        session = (builder.remote("local[2]") if CONNECT else builder.master("local[2]")).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an input for one query."""
    (tmp_path / "in").mkdir()
    return tmp_path
