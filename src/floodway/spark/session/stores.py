"""The store at a place that a user has named, and where a shed's state lies if the code does not say.

A place is opened through the session's JVM, pyarrow, or a JVM of its own:

a folder, file:               the disk
a Classic session             Spark's own file systems, settings and credentials, whatever the scheme
no session, or Connect        s3:, s3a:, gs:, abfss: by pyarrow; hdfs: and its like in a JVM started for it

The state of a shed lies, in this order, by

1. `state_dir=` in the code
2. `spark.floodway.state` in Spark's settings
3. `FLOODWAY_STATE` in the environment
4. `_floodway` below `spark.sql.streaming.checkpointLocation`
5. the user's own folder (`job/places.py`), where Spark runs on this machine alone

On a cluster nothing may lie on the driver's disk: the next driver may run on another machine, and on Spark Connect
executors read the decision there. Such a place is refused. Where every machine mounts the same folder,
`spark.floodway.state.shared=true` says so. A path without a scheme is Spark's, as everywhere in Spark: on a cluster it
belongs to `fs.defaultFS`.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from floodway.errors import FloodwayError, InputError
from floodway.job.places import ShedFiles, checked_name, state_root
from floodway.job.store.store import LocalStore, Store, StoreError, checked_place, join, local_folder, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HADOOP_SCHEMES = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs")
"""Those that are reached through Java only."""

STATE, SHARED = "spark.floodway.state", "spark.floodway.state.shared"
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
BESIDE = "_floodway"
Setting = Callable[[str], str | None]
"""A setting of the session by its key; None if it is not set."""


def open_store(place: str, spark: SparkSession | None = None) -> Store:
    """The store at a folder or URI; InputError or StoreError if there can be none. Nothing is written yet.

    >>> open_store("file:/data/state").uri
    'file:///data/state'
    """
    place = checked_place(place)
    if scheme_of(place) == "file":
        return LocalStore(local_folder(place))
    if spark is not None and not is_connect(spark):
        return _hadoop(place, spark._jvm, spark.sparkContext._jsc.hadoopConfiguration())
    if scheme_of(place) not in HADOOP_SCHEMES:
        from floodway.job.store.store_arrow import open_arrow

        return open_arrow(place)
    try:
        jvm, conf = _own_jvm()
    except (ImportError, FloodwayError, RuntimeError) as error:
        raise StoreError(
            f"{place} can be reached through Java only, which did not start",
            why=str(error).splitlines()[0],
            hint="Install Java 17 or later and pyspark on this machine",
        ) from None
    return _hadoop(place, jvm, conf)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to its Spark through Connect: there is no JVM on this side."""
    return ".connect." in type(spark).__module__


def _hadoop(place: str, jvm: Any, conf: Any) -> Store:
    from floodway.spark.session.hadoop_store import HadoopStore

    return HadoopStore(place, jvm, conf)


@cache
def _own_jvm() -> tuple[Any, Any]:
    """A JVM with Spark's class path and settings (`spark-defaults.conf`, `HADOOP_CONF_DIR`), and no Spark in it."""
    from pyspark.java_gateway import launch_gateway

    from floodway.spark.session.java import find_java

    os.environ.setdefault("JAVA_HOME", str(find_java()))
    # What Java logs is of no use to the user of a command; why it does not start is in the error.
    start: Any = launch_gateway
    gateway = start(popen_kwargs={"stderr": subprocess.DEVNULL})
    atexit.register(gateway.shutdown)
    jvm: Any = gateway.jvm
    return jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(jvm.org.apache.spark.SparkConf())


def place_files(spark: SparkSession | None, name: str, state_dir: str | None) -> ShedFiles:
    """The state of the shed of this name; InputError or StoreError for a place that will not do. Nothing is written."""
    checked_name(name)
    if spark is None:
        place = state_dir or state_root()
    else:
        place = state_place(
            state_dir,
            lambda key: setting(spark, key),
            local=runs_here(spark),
            default_fs="file:///" if is_connect(spark) else _default_fs(spark),
        )
    return ShedFiles(open_store(join(place, name), spark))


def state_place(state_dir: str | None, setting: Setting, *, local: bool, default_fs: str = "file:///") -> str:
    """The folder or URI that holds one folder per shed; InputError for one that executors do not see.

    `local`: driver and executors are on this machine. `default_fs` is where Spark puts a path without a scheme.
    """
    place = state_dir or setting(STATE) or os.environ.get("FLOODWAY_STATE")
    if not place and (checkpoints := setting(CHECKPOINTS)):
        place = join(checkpoints, BESIDE)
    if local:
        return place or state_root()
    if place and scheme_of(default_fs) != "file" and scheme_of(place) == "file" and not place.startswith("file:"):
        place = join(default_fs, place.lstrip("/"))
    place = place or state_root()
    if scheme_of(place) == "file" and (setting(SHARED) or "").lower() != "true":
        raise InputError(
            f"Spark runs on {setting('spark.master')}, whose executors do not see {place}",
            hint=f"Set {STATE} to a place that all of them reach, such as hdfs:///floodway or s3a://bucket/floodway; "
            f"if every machine mounts that folder, set {SHARED}=true",
        )
    return place


def runs_here(spark: SparkSession) -> bool:
    """Whether driver and executors are all on this machine."""
    local = (setting(spark, "spark.master") or "").startswith("local")
    if not is_connect(spark):
        return local
    client: Any = spark.client
    return local and client.host in ("localhost", "127.0.0.1", "::1")


def setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session; None if it is not set."""
    found = spark.conf.get(key, None)
    return None if found is None else str(found)


def _default_fs(spark: SparkSession) -> str:
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    return str(conf.get("fs.defaultFS", "file:///"))
