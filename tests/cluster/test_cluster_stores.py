"""Stores on real servers keep the promises of `Store`; what is wrong with a place is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from floodway.job.store.store import StoreError, probe
from floodway.spark.session.stores import open_store
from scripts.hadoop_cluster import Hdfs
from scripts.s3_server import S3Server
from tests.cluster.contract import check_ledger, check_store

pytestmark = pytest.mark.cluster

IN_A_JVM = """
import sys
from floodway.errors import FloodwayError
from floodway.job.store.store import probe
from floodway.spark.session.session import spark_session
from floodway.spark.session.stores import open_store
from tests.cluster.contract import check_ledger, check_store
*settings, place = sys.argv[1:]
spark = spark_session("stores", conf=dict(item.split("=", 1) for item in settings))
check_store(open_store(f"{place}/store", spark))
check_ledger(open_store(f"{place}/job", spark))
scheme = place.partition(":")[0]
for wrong in ("hdfs://127.0.0.1:1/state", "nothing://bucket/state", f"{scheme}://no-such-place/state"):
    try:
        probe(open_store(wrong, spark))
    except FloodwayError as error:
        print(f"{wrong}: {error}")
spark.stop()
"""


def in_a_jvm(place: str, settings: dict[str, str]) -> list[str]:
    """The checks in a process with a Classic session of its own: a session's jars are chosen when it starts."""
    arguments = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_JVM, *arguments, place],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def with_keys(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.mark.usefixtures("with_keys")
def test_s3_without_a_jvm() -> None:
    check_store(open_store("s3a://state/arrow/store"))
    check_ledger(open_store("s3a://state/arrow/job"))


def test_a_wrong_place_on_s3_is_one_sentence(with_keys: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match=r"s3a://absent/state cannot be written: .*bucket does not exist"):
        probe(open_store("s3a://absent/state"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StoreError, match=r"cannot be written: AWS Error NETWORK_CONNECTION .*Check the address"):
        probe(open_store("s3a://state/x"))


@pytest.mark.slow
def test_hdfs_in_a_session(hdfs: Hdfs) -> None:
    said = in_a_jvm(f"{hdfs.uri}/session", {})
    assert "cannot be written: " in said[0] and "Connection refused" in said[0]
    assert "has the scheme 'nothing', which Spark does not know. Use hdfs:, s3a:" in said[1]
    assert "no-such-place" in said[2]


@pytest.mark.slow
def test_s3_in_a_session(s3: S3Server, s3_jars: list[Path]) -> None:
    said = in_a_jvm("s3a://state/session", {"spark.jars": ",".join(map(str, s3_jars)), **s3.hadoop_settings})
    assert "s3a://no-such-place/state cannot be written: " in said[2] and "bucket does not exist" in said[2]


@pytest.mark.slow
def test_hdfs_without_a_session(hdfs: Hdfs) -> None:
    """As the commands have it: a JVM is started for the store alone."""
    check_store(open_store(f"{hdfs.uri}/alone/store"))


@pytest.mark.slow
def test_s3_without_its_connector_is_one_sentence() -> None:
    with pytest.raises(
        AssertionError, match=r"Spark has no connector for s3a://state/x/store: .*--packages org.apache"
    ):
        in_a_jvm("s3a://state/x", {})
