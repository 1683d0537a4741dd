"""Real stores for the tests below, one of each for all; where one cannot be fetched, a loud skip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from floodway.errors import FloodwayError
from scripts.fetch_hadoop import CLUSTER, S3_CLIENT, fetch_s3_server
from scripts.fetch_kafka import fetch
from scripts.hadoop_cluster import Hdfs
from scripts.s3_server import S3Server

Fetched = TypeVar("Fetched")


def fetched(what: str, get: Callable[[], Fetched]) -> Fetched:
    """What was fetched; skips the test that asks if it cannot be had."""
    try:
        return get()
    except FloodwayError as error:
        pytest.skip(f"NO REAL {what}: {error}")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with the bucket `state`."""
    with S3Server(fetched("S3", fetch_s3_server), tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("state")
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A name node and a data node."""
    with Hdfs(fetched("HDFS", lambda: fetch(CLUSTER)), tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3_jars() -> list[Path]:
    """The jars of Hadoop's S3 client."""
    return fetched("S3 CLIENT", lambda: fetch(S3_CLIENT))
