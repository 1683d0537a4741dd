"""`floodway run` on the embedded log, or on Kafka, killed in every phase of its batches.

The input is written here, while the job runs, at some times what it can process; so batches shed. Spark keeps all its
journal, and every batch there ever was can be derived again:

    expected in the sink    Σ over batches of the tuples that the journaled offset admits
    cut once                the journaled offset of a batch never changes, however often it is tried
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.experiments.chaos.broker import Broker
from floodway.experiments.chaos.kills.input_feed import STREAM, TUPLES_A_SECOND, InputFeed, KafkaFeeding, LogFeeding
from floodway.experiments.chaos.kills.kills import (
    BROKER_HOLD_SECONDS,
    FINISH_SECONDS,
    SPARK_HOLD_SECONDS,
    SPARK_SETTINGS,
    FedJob,
    KillPhase,
    campaign,
    until,
)
from floodway.experiments.chaos.kills.plain_job import run_plain_job
from floodway.experiments.chaos.kills.processes import ForkedJob, Job, Strike
from floodway.experiments.chaos.result import FaultResult, JobFindings, Trial
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import Store
from floodway.network.file import load_network
from floodway.spark.audit.run import audit
from floodway.spark.audit.sinks import count_log
from floodway.spark.log import LogReader
from floodway.spark.query.journal import committed_offsets, query_key, read_batch
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import writer_of
from floodway.spark.source.drops import kept_mask, tuple_ids

Ids = NDArray[np.int64]
QUERY, OUTPUT = "A.main", "q"
TARGETS = ("group", "driver", "java", "worker")
CLUSTER = "local-cluster[1,1,1024]"
"""Executors in processes of their own: how many, and the cores and megabytes of each."""
NETWORK = """
version: 1
name: chaos
streams: {{s: {{max_rate: {rate}, log: "{address}", schema: value bigint}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: s, kind: delay, cost: 0.006}}}}
outputs: {{q: {{from: work, sink: {folder}/output}}}}
"""
SETTINGS = {
    **SPARK_SETTINGS,
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    # Short-lived and many: the optimising compiler takes more than it gives.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


def kills(trial: Trial) -> FaultResult:
    """The embedded log: all of the job, its driver, its Java and its Python workers."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        job = RunJob(trial.folder, feeding)
        return campaign("run-kills", job, TARGETS, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


def plain_kills(trial: Trial) -> FaultResult:
    """The embedded log under the driver without Java: many points, for what Floodway itself writes."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        return campaign("plain-kills", PlainRun(trial.folder, feeding), ("driver",), trial)


def executor_kills(trial: Trial) -> FaultResult:
    """The embedded log with an executor in a process of its own: that, its Python workers and the driver's Java."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        home = {"SPARK_HOME": str(spark_home(trial.folder))}
        job = RunJob(trial.folder, feeding, master=CLUSTER, variables=home)
        targets = ("executor", "worker", "java")
        return campaign("executor-kills", job, targets, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


def kafka_kills(trial: Trial) -> FaultResult:
    """The driver without Java on a topic; the broker is struck, too."""
    with topic_of(trial) as (broker, feeding):
        job = PlainRun(trial.folder, feeding, {"broker": broker.strike})
        return campaign("kafka-kills", job, ("driver", "broker"), trial, hold_seconds=BROKER_HOLD_SECONDS)


def kafka_run_kills(trial: Trial) -> FaultResult:
    """`floodway run` on Spark, with its own source of topics; the broker is struck, too."""
    with topic_of(trial) as (broker, feeding):
        job = RunJob(trial.folder, feeding, {"broker": broker.strike})
        targets = ("broker", "java", "worker", "group")
        return campaign("kafka-run-kills", job, targets, trial, stop_every=2, hold_seconds=SPARK_HOLD_SECONDS)


@contextmanager
def topic_of(trial: Trial) -> Iterator[tuple[Broker, KafkaFeeding]]:
    """A broker of its own, and a topic on it."""
    if trial.kafka_libs is None:
        raise InputError("this fault needs the jars of a broker", hint="Give --kafka-libs FOLDER")
    jars = sorted(trial.kafka_libs.glob("*.jar"))
    topic = f"floodway-chaos-{secrets.token_hex(4)}"
    with Broker(jars, trial.folder / "broker") as broker, KafkaFeeding(broker.address, topic) as feeding:
        yield broker, feeding


def spark_home(folder: Path) -> Path:
    """The installed Spark under a folder of its own: executors write their output there."""
    home, spec = folder / "spark-home", find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InputError("Spark is not installed", hint="Install floodway[spark]")
    home.mkdir(parents=True)
    for path in Path(spec.origin).parent.iterdir():
        (home / path.name).symlink_to(path)
    return home


class RunJob(FedJob):
    """`floodway run` on one state folder."""

    def __init__(
        self,
        folder: Path,
        feeding: InputFeed,
        others: Mapping[str, Strike] | None = None,
        *,
        master: str = "local[1]",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._layout = RunLayout(folder / "state")
        super().__init__(folder, self._layout.root / "checkpoints" / QUERY, feeding, others, variables)
        self._master = master
        self._file = folder / "network.yaml"
        self._file.write_text(NETWORK.format(rate=TUPLES_A_SECOND, folder=folder, address=feeding.address))

    @property
    def store(self) -> Store:
        """Where the mode, the status and the ledger lie."""
        return self._layout.store

    def _started(self) -> Job:
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        command = ["-m", "floodway.cli.main", "run", str(self._file), "--state", str(self._layout.root)]
        command += ["--seconds", "100000s", "--target", "1s", "--master", self._master, "--json", *settings]
        return self._command(*command)

    def phases(self) -> Mapping[str, KillPhase]:
        """The six of a batch; `read` is what follows the cut, told apart by its delay."""
        return {
            "cut": KillPhase(self._checkpoint / "offsets", str.isdecimal),
            "read": KillPhase(self._checkpoint / "offsets", str.isdecimal),
            "sink": KillPhase(self._folder / "output" / "p0"),
            "ledger": KillPhase(self._layout.root / "ledger"),
            "commit": KillPhase(self._checkpoint / "commits", str.isdecimal),
            "steer": KillPhase(self._layout.root, lambda name: name == "decision.json"),
        }

    def look(self) -> JobFindings:
        """The audit, the sink against the journaled decisions, and the journal against what it was."""
        self._feeding.flow(False)
        network = load_network(self._file)
        audits = (audit(network, self._layout), audit(network, self._layout, full=True))
        found = JobFindings(differences=list(dict.fromkeys(text for one in audits for text in one.differences)))
        found.differences += self.cut_again()
        written = set(self._written())
        accounted = {line.batch for line in Ledger(self._layout.store).lines()}
        if len(written - accounted) > 1:
            found.differences.append(f"batches {sorted(written - accounted)} are in the sink and not in the ledger")
        sink = Counter(self.sink_ids().tolist())
        expected = Counter(self._admitted(written | accounted).tolist())
        found.doubled += sum(count - 1 for count in sink.values() if count > 1)
        found.lost += (expected - sink).total()
        if extra := (sink - expected).total() - found.doubled:
            found.differences.append(f"{extra} tuple(s) in the sink that no journaled decision admits")
        return found

    def finish(self) -> JobFindings:
        """Run it undisturbed and without load until all of the input is committed, then look."""
        self._feeding.flow(False)
        with self._started() as job:
            # What is written may still grow for a moment: a broker that comes back takes what waited for it.
            until(lambda: self.consumed() == self._feeding.total() or not job.running, FINISH_SECONDS)
            taken, total = self.consumed(), self._feeding.total()
            if taken != total:
                return JobFindings(differences=[f"undisturbed it took {taken} of {total} tuples: {job.said()}"])
        return self.look()

    def consumed(self) -> int:
        """Tuples of the input that Spark has committed."""
        offset = committed_offsets(self._checkpoint).get(STREAM)
        return 0 if offset is None else sum(offset.end.values())

    def _written(self) -> Mapping[int, int]:
        if not (self._checkpoint / "metadata").exists():
            return {}
        return count_log(self._folder / "output", writer_of(query_key(QUERY, self._checkpoint), OUTPUT)).batches

    def sink_ids(self) -> Ids:
        """Identities of all tuples in the sink."""
        reader = LogReader(self._folder / "output")
        batches = [batch for part, end in reader.end_positions().items() for batch in reader.read(part, 0, end)]
        found: Ids = np.concatenate([batch.column("origin_id").to_numpy() for batch in batches] or [np.zeros(0, int)])
        return found

    def _admitted(self, batches: set[int]) -> Ids:
        """What the journaled decisions of these batches let pass: pure functions of their offsets."""
        found: list[Ids] = [np.zeros(0, dtype=np.int64)]
        for number in sorted(batches):
            for offset in read_batch(self._checkpoint, number).offsets.values():
                rule = offset.admission
                for partition, first, end in offset.ranges():
                    ids = tuple_ids(partition, np.arange(first, end, dtype=np.int64))
                    found.append(ids[kept_mask(ids, salt=rule.salt, keep_ppm=rule.keep_ppm)])
        return np.concatenate(found)


class PlainRun(RunJob):
    """The same folder and the same judgement, under the driver without Java."""

    def _started(self) -> Job:
        return ForkedJob(run_plain_job, [str(self._folder)], self._folder / "errors.txt", self._others)
