"""The one line in a query, on the embedded log or on Spark's own connector to Kafka, killed in every phase of a batch.

Spark's file sink and source are exactly-once, so the sink is judged by itself: every id once, and for every batch as
many rows as the shed's ledger says were kept. A report that was lost with the driver is a gap, which the ledger must
say: batches without a line and without a gap are a difference, and so is a batch that is counted twice or otherwise.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from floodway.errors import FloodwayError, InputError
from floodway.experiments.chaos.kills.feeding import Feeding, KafkaFeeding, LogFeeding
from floodway.experiments.chaos.kills.kills import Phase, campaign, last_committed
from floodway.experiments.chaos.kills.processes import CommandJob, Job, Strike
from floodway.experiments.chaos.kills.run_kills import topic_of
from floodway.experiments.chaos.kills.shed_job import NAME
from floodway.experiments.chaos.result import FaultResult, Found, Trial
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.shed_state import ShedFiles
from floodway.spark.audit.shed import audit_shed
from floodway.spark.query.journal import committed_batches, committed_offsets

MODULE = "floodway.experiments.chaos.kills.shed_job"


def kills(trial: Trial) -> FaultResult:
    """All of the job, its driver and its Java; Python workers only plan its source."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        return campaign("shed-kills", ShedJob(trial.folder, feeding), ("group", "driver", "java"), trial)


def kafka_kills(trial: Trial) -> FaultResult:
    """On a topic; the broker is struck, too."""
    if trial.kafka_connector is None:
        raise InputError("this fault needs the jars of Spark's connector", hint="Give --kafka-connector FOLDER")
    with topic_of(trial) as (broker, feeding):
        job = TopicShedJob(trial.folder, feeding, trial.kafka_connector, {"broker": broker.strike})
        return campaign("kafka-shed-kills", job, ("broker", "java", "driver"), trial)


class ShedJob:
    """One folder, and the jobs that were started on it."""

    source: Sequence[str] = ()
    """Arguments that say where the input is."""

    def __init__(self, folder: Path, feeding: Feeding, others: Mapping[str, Strike] | None = None) -> None:
        self._folder = folder
        self._feeding = feeding
        self._others = others
        self._checkpoint = folder / "checkpoint"
        self._files = ShedFiles(folder / "state" / NAME)
        self._journal: dict[int, str] = {}
        feeding.consumed = self._consumed

    def start(self) -> Job:
        """Run for as long as it takes, under load."""
        self._feeding.flow(True)
        return self._started()

    def _started(self, *options: str) -> Job:
        command = ["-m", MODULE, str(self._folder), *options, *self.source]
        return CommandJob(command, self._folder / "errors.txt", self._others)

    def phases(self) -> Mapping[str, Phase]:
        """Cut, sink and commit of Spark; the shed's ledger and its control table."""
        return {
            "cut": Phase(self._checkpoint / "offsets", str.isdecimal),
            "sink": Phase(self._folder / "output" / "_spark_metadata"),
            "commit": Phase(self._checkpoint / "commits", str.isdecimal),
            "ledger": Phase(self._files.folder / "ledger"),
            "steer": Phase(self._files.folder),
        }

    def progress(self) -> int:
        """Batches that Spark has committed."""
        return last_committed(self._checkpoint)

    def look(self) -> Found:
        """Sink, ledger and journal."""
        self._feeding.flow(False)
        found = Found()
        ids = Counter(self._ids(self._parts()).tolist())
        found.doubled = sum(count - 1 for count in ids.values())
        for path in (self._checkpoint / "offsets").glob("[0-9]*"):
            if path.name.isdecimal() and self._journal.setdefault(int(path.name), path.read_text()) != path.read_text():
                found.differences.append(f"batch {path.name} was cut a second time, otherwise than the first")
        found.differences += self._ledger()
        return found

    def finish(self) -> Found:
        """Let it process what is left, twice: the second time it hears of what the first left unreported."""
        self._feeding.flow(False)
        for _ in range(2):
            with self._started("--drain") as job:
                if not job.ended() or job.exit_code:
                    return Found(differences=[f"undisturbed it did not end well: {job.said()}"])
        return self.look()

    def _consumed(self) -> int:
        return sum(sum(offset.end.values()) for offset in committed_offsets(self._checkpoint).values())

    def _ledger(self) -> list[str]:
        """Every batch with a line has its rows in the sink; every committed batch has a line, or a gap that says so."""
        if not committed_batches(self._checkpoint):
            return []
        kept = {line.batch: line.kept for line in Ledger(self._files.store).lines() if line.reason == Reason.SHEDDER}
        rows = {batch: len(self._ids(paths)) for batch, paths in self._by_batch().items()}
        wrong = [
            f"batch {batch}: the ledger says {kept[batch]} tuples were kept, the sink holds {rows.get(batch, 0)}"
            for batch in sorted(kept)
            if kept[batch] != rows.get(batch, 0)
        ]
        try:
            # Some seconds are given to a report; the drivers are dead, so what has not come never will.
            audited = audit_shed(NAME, self._files, time.time() + 3600.0, full=True)
        except FloodwayError as error:
            return [*wrong, str(error)]
        last = max(kept, default=-1)
        return [*wrong, *(text for text in audited.differences if self._matters(text, last))]

    @staticmethod
    def _matters(text: str, last: int) -> bool:
        """A gap that is said is no difference; nor is a batch after the last report, before the next driver starts."""
        if "no counts for batches" in text:
            return False
        if "committed by Spark, not in the ledger" in text:
            return int(text.partition("batch ")[2].partition(":")[0]) <= last
        return True

    def _parts(self) -> list[Path]:
        return [path for paths in self._by_batch().values() for path in paths]

    def _by_batch(self) -> dict[int, list[Path]]:
        """The files of each batch, as Spark's own journal of the sink names them.

        Every tenth entry, `N.compact`, repeats all before it: what it alone names is of batch N.
        """
        found: dict[int, list[Path]] = {}
        seen: set[Path] = set()
        entries = (self._folder / "output" / "_spark_metadata").glob("[0-9]*")
        numbered = {int(path.name.partition(".")[0]): path for path in entries if path.suffix in ("", ".compact")}
        for batch, path in sorted(numbered.items()):
            lines = path.read_text(encoding="utf-8").splitlines()[1:]
            names = {Path(json.loads(line)["path"].removeprefix("file://")) for line in lines}
            found[batch] = sorted(names - seen)
            seen |= names
        return found

    @staticmethod
    def _ids(paths: list[Path]) -> NDArray[np.int64]:
        tables = [parquet.read_table(path, columns=["id"]).column("id").to_numpy() for path in paths]
        return np.concatenate([np.zeros(0, dtype=np.int64), *tables])


class TopicShedJob(ShedJob):
    """The same on a topic."""

    def __init__(self, folder: Path, feeding: KafkaFeeding, jars: Path, others: Mapping[str, Strike]) -> None:
        super().__init__(folder, feeding, others)
        self.source = ("--kafka", feeding.servers, feeding.topic, str(jars))

    def _consumed(self) -> int:
        committed = committed_batches(self._checkpoint)
        if not committed:
            return 0
        # A version, a line of metadata, then a line per source: {"topic": {"partition": offset}}.
        lines = (self._checkpoint / "offsets" / str(committed[-1])).read_text(encoding="utf-8").splitlines()
        return sum(end for parts in json.loads(lines[-1]).values() for end in parts.values())
