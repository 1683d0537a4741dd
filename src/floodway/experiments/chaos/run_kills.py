"""`floodway run` on the embedded log, or on Kafka, killed in every phase of its batches.

The input is written here, while the job runs, at some times what it can process; so batches shed. Spark keeps all its
journal, and every batch there ever was can be derived again:

    expected in the sink    Σ over batches of the tuples that the journaled offset admits
    cut once                the journaled offset of a batch never changes, however often it is tried
"""

from __future__ import annotations

import json
import secrets
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.errors import FloodwayError, InputError
from floodway.experiments.chaos.broker import Broker
from floodway.experiments.chaos.kills import FINISH_SECONDS, Phase, campaign, last_committed, until
from floodway.experiments.chaos.plain_job import run_plain_job
from floodway.experiments.chaos.processes import CommandJob, ForkedJob, Job, Strike
from floodway.experiments.chaos.result import FaultResult, Found, Trial
from floodway.job.ledger.ledger import Ledger
from floodway.network.file import load_network
from floodway.spark.audit.run import audit
from floodway.spark.audit.sinks import count_log
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.log.inputs import open_input
from floodway.spark.log.kafka_links import SCHEME
from floodway.spark.log.kafka_target import KafkaTarget
from floodway.spark.query.journal import committed_offsets, journaled_batches, query_key, read_batch
from floodway.spark.query.layout import Layout
from floodway.spark.query.sinks import writer_of
from floodway.spark.source.drops import kept_mask, tuple_ids

Ids = NDArray[np.int64]
QUERY, OUTPUT, STREAM = "A.main", "q", "s"
TARGETS = ("group", "driver", "java", "worker")
TUPLES_A_SECOND, PART_SECONDS, MOST_WAITING = 400, 0.05, 3000
NETWORK = """
version: 1
name: chaos
streams: {{s: {{max_rate: {rate}, log: "{address}", schema: value bigint}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: s, kind: delay, cost: 0.006}}}}
outputs: {{q: {{from: work, sink: {folder}/output}}}}
"""
SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    # Short-lived and many: the optimising compiler takes more than it gives.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


def kills(trial: Trial) -> FaultResult:
    """The embedded log: all of the job, its driver, its Java and its Python workers."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        return campaign("run-kills", RunJob(trial.folder, feeding), TARGETS, trial)


def plain_kills(trial: Trial) -> FaultResult:
    """The embedded log under the driver without Java: many points, for what Floodway itself writes."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    with LogFeeding(trial.folder / "input") as feeding:
        return campaign("plain-kills", PlainRun(trial.folder, feeding), ("driver",), trial)


def kafka_kills(trial: Trial) -> FaultResult:
    """The same on a topic; the broker is struck, too."""
    if trial.kafka_libs is None:
        raise InputError("kafka-kills needs the jars of a broker", hint="Give --kafka-libs FOLDER")
    jars = sorted(trial.kafka_libs.glob("*.jar"))
    with (
        Broker(jars, trial.folder / "broker") as broker,
        KafkaFeeding(broker.address, f"floodway-chaos-{secrets.token_hex(4)}") as feeding,
    ):
        job = PlainRun(trial.folder, feeding, {"broker": broker.strike})
        return campaign("kafka-kills", job, ("driver", "broker"), trial)


class Feeding(ABC):
    """Writes the input as long as it is told to; what was written stays."""

    address: str
    """Where the network file finds it."""

    def __init__(self) -> None:
        self.consumed: Callable[[], int] = lambda: 0
        """How many tuples the job has committed: it must be overloaded, and not for ever behind."""
        self._stopped = threading.Event()
        self._flowing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def flow(self, flowing: bool) -> None:
        """Begin to write, or pause."""
        (self._flowing.set if flowing else self._flowing.clear)()

    def total(self) -> int:
        """Tuples written so far."""
        return sum(open_input(self.address).latest().values())

    @abstractmethod
    def write(self, count: int) -> None:
        """Write some tuples."""

    def _run(self) -> None:
        written, count = 0, int(TUPLES_A_SECOND * PART_SECONDS)
        while not self._stopped.wait(PART_SECONDS):
            if self._flowing.is_set() and written - self.consumed() < MOST_WAITING:
                self.write(count)
                written += count

    def __enter__(self) -> Feeding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


class LogFeeding(Feeding):
    """An embedded log."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.address = str(create_log(path, "value bigint", stream=STREAM).path)
        self._writer = LogWriter(path, sync=False)

    def write(self, count: int) -> None:
        """See `Feeding`."""
        end = self._writer.end()
        self._writer.append(pa.table({"value": np.arange(end, end + count)}))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._writer.close()


class KafkaFeeding(Feeding):
    """A topic of two partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self.address = f"{SCHEME}{servers}/{topic}"
        self._target = KafkaTarget(servers, topic, partitions=2)
        self._written = 0

    def write(self, count: int) -> None:
        """See `Feeding`."""
        try:
            for number in range(self._written, self._written + count):
                self._target.put(json.dumps({"value": number}).encode(), number % 2)
            self._target.close()
        except FloodwayError:
            return  # the broker is away; what it took or not, its offsets say
        self._written += count


class RunJob:
    """One state folder, and the jobs that were started on it."""

    def __init__(self, folder: Path, feeding: Feeding, others: Mapping[str, Strike] | None = None) -> None:
        self._folder = folder
        self._feeding = feeding
        self._others = others or {}
        self._file = folder / "network.yaml"
        self._file.write_text(NETWORK.format(rate=TUPLES_A_SECOND, folder=folder, address=feeding.address))
        self._layout = Layout(folder / "state")
        self._checkpoint = self._layout.root / "checkpoints" / QUERY
        self._journal: dict[int, str] = {}
        feeding.consumed = self.consumed

    def start(self) -> Job:
        """Run for as long as it takes, under load."""
        self._feeding.flow(True)
        return self._started()

    def _started(self) -> Job:
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        command = ["-m", "floodway.cli.main", "run", str(self._file), "--state", str(self._layout.root)]
        command += ["--seconds", "100000s", "--target", "1s", "--master", "local[1]", "--json", *settings]
        return CommandJob(command, self._folder / "errors.txt", self._others)

    def phases(self) -> Mapping[str, Phase]:
        """The six of a batch; `read` is what follows the cut, told apart by its delay."""
        return {
            "cut": Phase(self._checkpoint / "offsets", str.isdecimal),
            "read": Phase(self._checkpoint / "offsets", str.isdecimal),
            "sink": Phase(self._folder / "output" / "p0"),
            "ledger": Phase(self._layout.root / "ledger"),
            "commit": Phase(self._checkpoint / "commits", str.isdecimal),
            "steer": Phase(self._layout.root, lambda name: name == "decision.json"),
        }

    def progress(self) -> int:
        """Batches that Spark has committed."""
        return last_committed(self._checkpoint)

    def look(self) -> Found:
        """The audit, the sink against the journaled decisions, and the journal against what it was."""
        self._feeding.flow(False)
        network = load_network(self._file)
        audits = (audit(network, self._layout), audit(network, self._layout, full=True))
        found = Found(differences=list(dict.fromkeys(text for one in audits for text in one.differences)))
        for number in journaled_batches(self._checkpoint):
            text = (self._checkpoint / "offsets" / str(number)).read_text()
            if self._journal.setdefault(number, text) != text:
                found.differences.append(f"batch {number} was cut a second time, otherwise than the first")
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

    def finish(self) -> Found:
        """Run it undisturbed and without load until all of the input is committed, then look."""
        self._feeding.flow(False)
        total = self._feeding.total()
        with self._started() as job:
            until(lambda: self.consumed() == total or not job.running, FINISH_SECONDS)
            taken = self.consumed()
            if taken != total:
                return Found(differences=[f"undisturbed it took {taken} of {total} tuples: {job.said()}"])
        return self.look()

    def dropped(self) -> int:
        """Tuples that were dropped, for who wants to know that the campaign was worth it."""
        return Ledger(self._layout.store).fold().total.dropped.total()

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
