"""The store at a place that a user has named: through the session's JVM, pyarrow, or a JVM of its own.

a folder, file:               the disk
a Classic session             Spark's own file systems, settings and credentials, whatever the scheme
no session, or Connect        s3:, s3a:, gs:, abfss: by pyarrow; hdfs: and its like in a JVM started for it
"""

from __future__ import annotations

import atexit
import os
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

from floodway.errors import FloodwayError
from floodway.job.store.store import LocalStore, Store, StoreError, checked_place, local_folder, scheme_of
from floodway.job.store.store_arrow import open_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HADOOP_SCHEMES = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs")
"""Those that are reached through Java only."""


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
