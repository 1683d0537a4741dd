"""One Spark session for a Floodway process: small, quiet, on loopback, every setting explained.

>>> spark = spark_session("my-job", conf={"spark.sql.shuffle.partitions": "4"})  # doctest: +SKIP

Java is found by `find_java`, so nothing has to be set in the environment. Spark allows one context a process: if one
is running already, it is returned, and only settings that can change at runtime are applied to it.

Errors that Spark or a Python worker wrapped, in one line.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from floodway.errors import FloodwayError
from floodway.spark.session import worker_start
from floodway.spark.session.java import find_java

_RAISED = re.compile(r"^floodway\.[\w.]*?(\w+Error): (.+)$", re.MULTILINE)


def own_message(error: BaseException) -> str | None:
    """Floodway's own message inside an error that Spark or a Python worker wrapped; None if there is none.

    >>> own_message(RuntimeError("Traceback\\nfloodway.spark.log.errors.MissingLogError: no log at x\\n at y"))
    'no log at x'
    """
    found = _RAISED.findall(str(error))
    return str(found[-1][1]).strip() if found else None


def explain(error: BaseException) -> str:
    """The one line that matters in an error that Spark wrapped: Floodway's own message, or the first line."""
    return own_message(error) or str(error).strip().splitlines()[0]


LOCAL_MASTER = "local[2]"
Session = SparkSession
"""Spark's session, for rooms that hold one but do not import pyspark."""


class SparkStartError(FloodwayError):
    """Spark's Java process did not come up."""


LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# For every master. None of these changes what a query computes.
COMMON = {
    # No web server a session: ports are few, and Floodway reads the status store directly.
    "spark.ui.enabled": "false",
    # The progress bar writes over whatever Floodway prints in the terminal.
    "spark.ui.showConsoleProgress": "false",
    # Timestamps read and print the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Python UDFs and toPandas exchange Arrow batches instead of pickled rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # State in RocksDB: off the Java heap, so that a growing window does not turn into garbage collection.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch commits the changes to its state, not a snapshot of all of it: commits stay short.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A bound on the memory of all RocksDB instances of the process together; without it each takes its own.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    # That bound, in MB: the state of a demo or a test fits many times over.
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
    # Snapshots and clean-up run in the background this often; the default minute lets change logs pile up.
    "spark.sql.streaming.stateStore.maintenanceInterval": "30s",
    # A query that does not stop in this time fails loudly instead of holding up the process for ever.
    "spark.sql.streaming.stopTimeout": "60s",
}

# For a session that runs in this process (a `local` master): sized for a laptop, deaf to the network.
LOCAL = {
    # The default of 200 tasks a shuffle is for clusters; on two cores it only costs a second a micro-batch.
    "spark.sql.shuffle.partitions": "2",
    # Enough for every test and demo, small enough for several to run side by side.
    "spark.driver.memory": "2g",
    # Driver and executor are one process: nothing outside this machine has to reach it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Python workers are on this machine: a Unix socket takes a third off what each costs a micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager starts a shell ten times a file, 74 ms for each of the two files of a micro-batch; this one
    # writes the same files by the same rename in 12 ms.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def spark_session(
    app_name: str, *, master: str | None = LOCAL_MASTER, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start, or return, this process's Spark session.

    `master` None leaves the choice to `spark-submit` or its defaults. `conf` wins over every setting made here. ANSI
    mode and all else that decides results stay at Spark's defaults.
    """
    # Workers must run this very environment's Python, not the first `python3` on the PATH.
    local = master is not None and master.startswith("local")
    # The driver's are those that Spark asks for a source's columns and partitions whenever a query starts.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = worker_python() if local else sys.executable
    os.environ["JAVA_HOME"] = str(find_java())
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings(master, conf or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkStartError(
            f"Spark did not start on the Java in {os.environ['JAVA_HOME']}: {str(error).splitlines()[0].rstrip('.')}",
            hint="What it printed above says why; another Java (17 or later) can be named in JAVA_HOME",
        ) from None


def settings(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration for a master: common, local where it is local, the caller's on top."""
    chosen = dict(COMMON)
    if master is not None and master.startswith("local"):
        chosen |= LOCAL
        # Tables go to a folder of the process, never into the working directory.
        chosen["spark.sql.warehouse.dir"] = str(_warehouse())
    # Read when the Java process starts, before `spark.log.level` could have an effect.
    chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    return chosen | dict(conf)


@cache
def _warehouse() -> Path:
    """A folder for this process's tables, removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="floodway-warehouse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_WRAPPER = """#!/bin/sh
kept=$(printf %s "$PYTHONPATH" | tr ':' '\\n' | grep -Ev '/(pyspark|py4j-[^/]*)[.]zip$' | paste -sd: -)
case "$1 $2" in
    "-m pyspark.daemon") shift 2; set -- -m floodway.spark.session.worker_daemon "$@" ;;
    "-m pyspark."*) shift; set -- -P "{start}" "$@" ;;
esac
PYTHONPATH="$kept" exec "{python}" "$@"
"""


@cache
def worker_python() -> str:
    """This environment's Python, started so that it takes pyspark from site-packages, and its daemon from Floodway.

    Spark puts its own `pyspark.zip` in front of every worker's path. Modules in a zip have no bytecode, so each new
    worker compiles pyspark anew: a second of CPU. The wrapper takes the zips out; the versions are the same. Workers
    are forked by `worker_daemon`: the setting `spark.python.daemon.module` does not reach those that plan a source.
    Those that Spark starts one by one connect to it before they import anything (`worker_start`).
    """
    folder = Path(tempfile.mkdtemp(prefix="floodway-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wrapper = folder / "python3"
    wrapper.write_text(_WRAPPER.format(python=sys.executable, start=worker_start.__file__), encoding="utf-8")
    wrapper.chmod(0o755)
    return str(wrapper)
