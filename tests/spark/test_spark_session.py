"""The shared session is what `session.py` says it is."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from floodway.spark.session.java import probe
from floodway.spark.session.session import COMMON, LOCAL, settings, spark_session, worker_python
from floodway.spark.session.worker_daemon import collect_the_new, print_unless_hung_up
from tests.patience import PATIENCE_SECONDS


def test_the_callers_settings_win() -> None:
    chosen = settings("local[2]", {"spark.driver.memory": "1g", "spark.sql.warehouse.dir": "w"})
    assert chosen["spark.driver.memory"] == "1g"
    assert chosen["spark.sql.warehouse.dir"] == "w"
    assert chosen["spark.ui.enabled"] == COMMON["spark.ui.enabled"]


@pytest.mark.parametrize("master", [None, "spark://127.0.0.1:7077"])
def test_a_cluster_gets_none_of_the_local_sizes(master: str | None) -> None:
    assert not LOCAL.keys() & settings(master, {}).keys()


@pytest.mark.spark
def test_it_runs_with_these_settings_on_a_java_that_was_found(spark: SparkSession) -> None:
    # The tests' settings of their own.
    own = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.stopTimeout": f"{PATIENCE_SECONDS}s"}
    for key, value in (COMMON | LOCAL | own).items():
        assert spark.sparkContext.getConf().get(key) == value, key
    assert spark.sparkContext.master == "local[2]"
    jvm = spark._jvm
    assert jvm is not None
    runtime = probe(Path(str(jvm.java.lang.System.getProperty("java.home"))) / "bin" / "java")
    assert runtime is not None
    assert runtime.version >= 17


@pytest.mark.spark
def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    assert spark_session("again").sparkContext is spark.sparkContext


@pytest.mark.spark
def test_python_workers_run_this_python(spark: SparkSession) -> None:
    executable = udf(lambda _: sys.executable, "string")
    assert spark.range(1).select(executable("id")).first() == (sys.executable,)


@pytest.mark.spark
def test_workers_leave_imported_modules_out_of_their_garbage_collection(spark: SparkSession) -> None:
    frozen = udf(lambda _: gc.get_freeze_count(), "long")
    spark.range(1).select(frozen("id")).collect()  # after this task its worker collects, and leaves out what is there
    (first,) = spark.range(1).select(frozen("id")).first() or (0,)
    assert first > 1000


def test_what_came_after_the_imports_is_collected() -> None:
    class Loop:
        def __init__(self) -> None:
            self.me = self

    collect_the_new()
    try:
        gone = weakref.ref(Loop())
        collect_the_new()
        assert gone() is None
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(("error", "printed"), [(BrokenPipeError(), False), (ConnectionError("cut"), True)])
def test_the_daemon_prints_every_traceback_but_that_of_a_stopped_query(
    error: Exception, printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except Exception:
        print_unless_hung_up()
    assert ("Traceback" in capsys.readouterr().err) == printed


def test_a_worker_connects_before_its_imports(tmp_path: Path) -> None:
    """Spark waits ten seconds for the connection; here the import ends only after it, however long that takes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(gate)!r}).read()\n")
    (package / "util.py").write_text("")
    told = "file.write(b'here'); file.flush()"
    (package / "runner.py").write_text(f"from pyspark import util\nfile, _ = util.local_connect_and_auth()\n{told}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "s"),
        }
        with subprocess.Popen([worker_python(), "-m", "pyspark.runner"], env=environment) as worker:
            connection, _ = listening.accept()
            with connection:
                gate.write_text("")
                assert connection.recv(4) == b"here"
    assert worker.returncode == 0


@pytest.mark.spark
def test_a_stateful_stream_runs_and_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    counts: list[dict[str, int]] = []
    for batch in ("a\nb\na\n", "b\nb\n"):
        source.mkdir(exist_ok=True)
        (source / f"{len(counts)}.txt").write_text(batch)
        seen: dict[str, int] = {}

        def keep(rows: DataFrame, _: int, seen: dict[str, int] = seen) -> None:
            seen.update({row["value"]: row["count"] for row in rows.collect()})

        query = (
            spark.readStream.text(str(source))
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_SECONDS)
        counts.append(seen)
    assert counts == [{"a": 2, "b": 1}, {"b": 3}]
