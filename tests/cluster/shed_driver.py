"""A driver for the tests on clusters: a query with a shed that keeps half, in a process that can be killed.

    python -m tests.cluster.shed_driver '{"master": …, "state": …, "checkpoint": …, "out": …, "settings": {…}}'

Every batch's kept ids go to OUT/BATCH.json. A batch that is repeated and keeps others leaves OUT/BATCH.differs. After
batch `die_at` is written, and before Spark commits it, the process kills itself. In batch `stop_at` the query ends, and
its audit is in OUT/audit.json. Both wait until the batch before is in the ledger: a report that a killed driver did not
write is lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import floodway
from floodway.control.base import Controller, Decision, Observation, State
from floodway.job.ledger.ledger import Ledger
from floodway.spark.audit.shed import audit_shed
from floodway.spark.session.session import spark_session

ROWS = 2000


@dataclass(frozen=True)
class Half(Controller[State]):
    """Keeps half of what waits."""

    name: ClassVar[str] = "half"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        return state, Decision(0.5 * observation.waiting, 1.0, "half")


class EndedError(Exception):
    """The query has done what it was asked for."""


def main(given: dict[str, Any]) -> None:
    """Run the query as asked."""
    out = Path(given["out"])
    spark = spark_session("floodway-cluster", master=given["master"], conf=given["settings"])
    shed = floodway.shed(
        "clicks", target_latency="2s", mode="enforce", controller=Half(), identity="value", state_dir=given["state"]
    )

    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0.1)

    def take(batch: DataFrame, number: int) -> None:
        if number in (given.get("die_at"), given["stop_at"]):
            wait_for(lambda: any(line.batch >= number - 1 for line in Ledger(shed.files.store).read()))
        if number == given["stop_at"]:
            raise EndedError
        kept = json.dumps(sorted(row.value for row in batch.select("value").collect()))
        file = out / f"{number}.json"
        if file.exists() and file.read_text() != kept:
            (out / f"{number}.differs").write_text(kept)
        file.write_text(kept)
        if number == given.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    writer = rows.transform(shed).writeStream.foreachBatch(take).option("checkpointLocation", given["checkpoint"])
    with suppress(StreamingQueryException):
        writer.start().awaitTermination()
    status = shed.files.read_status()
    assert status is not None
    # Judged as if an hour had passed: nothing is too young to be judged.
    audit = audit_shed("clicks", shed.files, time.time() + 3600)
    said = {"decision_seen": status.decision_seen, "warnings": status.warnings, "keep": status.keep}
    said["late_writes"] = None if status.shed is None else status.shed.late_writes
    lines = {line.batch: line.kept for line in Ledger(shed.files.store).read() if line.reason == "shedder"}
    (out / "audit.json").write_text(json.dumps({**asdict(audit), **said, "lines": lines}))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
