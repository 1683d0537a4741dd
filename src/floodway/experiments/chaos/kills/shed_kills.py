"""The one line in a query, on the embedded log or on Spark's own connector to Kafka, killed in every phase of a batch.

The sink holds what every try of a batch kept (`shed_job.py`): all tries of a batch hold the same tuples, no tuple is in
two batches, and a batch has as many as the shed's ledger says were kept. A report that was lost with the driver is a
gap, which the ledger must say: batches without a line and without a gap are a difference, and so is a batch that is
counted twice or otherwise. In the end a backfill closes the gaps: then every tuple is offered once, kept or dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from floodway.errors import FloodwayError, InputError
from floodway.experiments.chaos.kills.input_feed import InputFeed, KafkaFeeding, LogFeeding
from floodway.experiments.chaos.kills.kills import SPARK_HOLD_SECONDS, FedJob, KillPhase, campaign
from floodway.experiments.chaos.kills.processes import Job, Strike
from floodway.experiments.chaos.kills.run_kills import topic_of
from floodway.experiments.chaos.kills.shed_job import NAME
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.places import ShedFiles
from floodway.job.store.store import Store
from floodway.spark.audit.shed import audit_shed
from floodway.spark.query.journal import committed_batches, committed_offsets

MODULE = "floodway.experiments.chaos.kills.shed_job"
LONG_SECONDS = 30 * 86_400.0
"""Longer ahead than any clock of a campaign is set."""


def kills(trial: Trial) -> FaultResult:
    """All of the job, its driver and its Java; Python workers only plan its source."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        targets, job = ("group", "driver", "java"), ShedJob(trial.folder, feeding)
        return campaign("shed-kills", job, targets, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


def kafka_kills(trial: Trial) -> FaultResult:
    """On a topic; the broker is struck, too."""
    if trial.kafka_connector is None:
        raise InputError("this fault needs the jars of Spark's connector", hint="Give --kafka-connector FOLDER")
    with topic_of(trial) as (broker, feeding):
        job = TopicShedJob(trial.folder, feeding, trial.kafka_connector, {"broker": broker.strike})
        targets = ("broker", "java", "driver")
        return campaign("kafka-shed-kills", job, targets, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


class ShedJob(FedJob):
    """The one line in a query on one folder."""

    source: Sequence[str] = ()
    """Arguments that say where the input is."""

    def __init__(
        self,
        folder: Path,
        feeding: InputFeed,
        others: Mapping[str, Strike] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, folder / "checkpoint", feeding, others, variables)
        self._files = ShedFiles(folder / "state" / NAME)

    @property
    def store(self) -> Store:
        """Where the mode, the status and the ledger lie."""
        return self._files.store

    def _started(self, *options: str) -> Job:
        return self._command("-m", MODULE, str(self._folder), *options, *self.source)

    def phases(self) -> Mapping[str, KillPhase]:
        """Cut, read, sink and commit of Spark; the shed's ledger and its control table."""
        return {
            "cut": KillPhase(self._checkpoint / "offsets", str.isdecimal),
            "read": KillPhase(self._checkpoint / "offsets", str.isdecimal),
            "sink": KillPhase(self._folder / "sinks"),
            "commit": KillPhase(self._checkpoint / "commits", str.isdecimal),
            "ledger": KillPhase(self._files.folder / "ledger"),
            "steer": KillPhase(self._files.folder),
        }

    def look(self, *, closed: bool = False) -> JobFindings:
        """Sink, ledger and journal; with `closed` gaps, everything that was read is on the ledger."""
        self._feeding.flow(False)
        found = JobFindings()
        tries = self._tries()
        found.repeated = sum(len(others) for _, *others in tries.values())
        for batch, (first, *others) in sorted(tries.items()):
            if not all(np.array_equal(first, other) for other in others):
                sizes = ", ".join(str(len(ids)) for ids in (first, *others))
                found.differences.append(f"batch {batch} did not keep the same tuples in every try, but {sizes}")
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *(first for first, *_ in tries.values())])
        found.doubled = len(ids) - len(np.unique(ids))
        found.differences += self.cut_again()
        found.differences += self._ledger({batch: len(first) for batch, (first, *_) in tries.items()}, closed=closed)
        return found

    def finish(self) -> JobFindings:
        """Let it process what is left, twice: the second time it hears of what the first left unreported.

        Between the two the last commit is lost, as a crash of the machine may lose it: at least one batch is repeated.
        """
        self._feeding.flow(False)
        for again in (False, True):
            if again:
                (self._checkpoint / "commits" / str(self.progress())).unlink()
            with self._started("--drain") as job:
                if not job.ended() or job.exit_code:
                    return JobFindings(differences=[f"undisturbed it did not end well: {job.said()}"])
        with self._started("--recount") as job:
            if not job.ended() or job.exit_code:
                return JobFindings(differences=[f"its gaps were not closed: {job.said()}"])
        found = self.look(closed=True)
        if not found.repeated:
            found.differences.append("no batch was repeated, so nothing shows that replays keep the same tuples")
        return found

    def consumed(self) -> int:
        return sum(sum(offset.end.values()) for offset in committed_offsets(self._checkpoint).values())

    def _ledger(self, rows: Mapping[int, int], *, closed: bool) -> list[str]:
        """Every batch with a line has its rows in the sink; every committed batch has a line, or a gap that says so."""
        if not committed_batches(self._checkpoint):
            return []
        kept = {line.batch: line.kept for line in Ledger(self._files.store).lines() if line.reason == Reason.SHEDDER}
        wrong = [
            f"batch {batch}: the ledger says {kept[batch]} tuples were kept, the sink holds {rows.get(batch, 0)}"
            for batch in sorted(kept)
            if kept[batch] != rows.get(batch, 0)
        ]
        try:
            # Some seconds are given to a report; the drivers are dead, so what has not come never will.
            audited = audit_shed(NAME, self._files, time.time() + LONG_SECONDS, full=True)
        except FloodwayError as error:
            return [*wrong, str(error)]
        if closed:
            offered, read = audited.offered, self.consumed()
            wrong += [f"{read} tuples were read, the ledger says {offered}"] if offered != read else []
            return [*wrong, *audited.differences]
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

    def _tries(self) -> dict[int, list[NDArray[np.int64]]]:
        """The ids of every whole try of each batch, in order."""
        found: dict[int, list[NDArray[np.int64]]] = {}
        for mark in sorted((self._folder / "output").glob("batch=*/try=*/_SUCCESS")):
            files = mark.parent.glob("*.parquet")
            parts = [parquet.read_table(path, columns=["id"])["id"].to_numpy() for path in files]
            ids = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
            found.setdefault(int(mark.parts[-3].removeprefix("batch=")), []).append(ids)
        return found


class TopicShedJob(ShedJob):
    """The same on a topic."""

    def __init__(self, folder: Path, feeding: KafkaFeeding, jars: Path, others: Mapping[str, Strike]) -> None:
        super().__init__(folder, feeding, others)
        self.source = ("--kafka", feeding.servers, feeding.topic, str(jars))

    def consumed(self) -> int:
        committed = committed_batches(self._checkpoint)
        if not committed:
            return 0
        # A version, a line of metadata, then a line per source: {"topic": {"partition": offset}}.
        lines = (self._checkpoint / "offsets" / str(committed[-1])).read_text(encoding="utf-8").splitlines()
        return sum(end for parts in json.loads(lines[-1]).values() for end in parts.values())
