"""A driver that asks a cluster for a second executor: `python -m tests.cluster.executors_driver MASTER SETTINGS`."""

from __future__ import annotations

import json
import sys

from floodway.spark.session.session import spark_session
from floodway.spark.shed.executors import executor_requests
from tests.patience import wait_until

ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    # Spark itself asks by tasks that wait: here none is to wait for so long.
    "spark.dynamicAllocation.schedulerBacklogTimeout": "3600s",
    "spark.executor.cores": "1",
}


def main(master: str, settings: dict[str, str]) -> None:
    """Ask, and wait until it is there."""
    spark = spark_session("floodway-executors", master=master, conf={**settings, **ALLOCATION})
    requests = executor_requests(spark, "--ask-executors")
    wait_until(lambda: requests.present() == 1, "the first executor")
    spark.range(10).count()
    assert requests.present() == 1
    assert requests.take(3.0, 0.0) == 1
    wait_until(lambda: requests.present() == 2, "the second executor")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
