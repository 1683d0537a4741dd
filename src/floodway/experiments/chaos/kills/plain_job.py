"""A driver without Java, for kills by the hundred.

It runs micro-batches of one fragment in the order and with the journal of Spark: `offsets/N` is renamed into place
before batch N runs, `commits/N` after its sinks; a batch without a commit is repeated with the offset it has. All else
is what `floodway run` runs: the source with its decision in the offset, the log or topic, the sink with its tags, the
ledger and the decision file. Results of kills of this process hold for those parts, not for Spark.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from floodway.job.decision import JobDecision, StreamDecision, named, write_decision
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import write_atomically
from floodway.network.file import load_network
from floodway.network.model import Network
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.inputs import source_options
from floodway.spark.query.fragment_lines import batch_lines
from floodway.spark.query.fragments import Fragment, fragments
from floodway.spark.query.journal import (
    committed_batches,
    journaled_batches,
    note_beginnings,
    note_tasks,
    query_key,
    read_batch,
)
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import Written, tag_of
from floodway.spark.query.tail import TailResult
from floodway.spark.source.readers import FloodwaySource
from floodway.units import PPM

COLUMNS = "value bigint, origin_id bigint, weight double"
BATCH_TUPLES = 200
WORK_SECONDS = 0.02
"""A batch takes this long to process, so that a signal can come in the middle of it."""


class PlainJob:
    """One fragment and its checkpoint."""

    def __init__(self, network: Network, layout: RunLayout) -> None:
        self._fragment: Fragment = fragments(network, next(iter(network.nodes)))[0]
        self._layout = layout
        self._checkpoint = layout.checkpoint(self._fragment)
        self._ledger = Ledger(layout.store)
        (spec,) = self._fragment.sources
        (self._sink,) = self._fragment.outputs
        self._output = layout.output(network, self._sink)
        self._stream = spec.name
        address = layout.source(network, self._fragment, spec)
        options = {
            "stream": self._stream,
            "decision": str(layout.decision),
            "notes": str(layout.notes),
            "splits": "1",
            "maxTuplesPerBatch": str(BATCH_TUPLES),
            **source_options(address, network.streams[self._stream].schema if "://" in address else None),
        }
        source = FloodwaySource(options)
        self._reader = source.streamReader(source.schema())
        self._rng = random.Random(len(journaled_batches(self._checkpoint)))
        self._begin()

    def run(self) -> None:
        """Batch after batch, until it is killed."""
        while True:
            if not self.batch():
                time.sleep(WORK_SECONDS)

    def batch(self) -> bool:
        """Cut or repeat one batch, read, write, account, commit and steer; False if there is nothing to do."""
        done = committed_batches(self._checkpoint)
        number = done[-1] + 1 if done else 0
        journal = self._checkpoint / "offsets" / str(number)
        start = self._offset(number - 1) if number else self._reader.initialOffset()
        if not journal.exists():
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end == start:
                return False
            metadata = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000}
            write_atomically(journal, f"v1\n{json.dumps(metadata)}\n{json.dumps(end)}")
        note_beginnings(self._checkpoint, read_batch(self._checkpoint, number))
        written = self._write(number, self._read(start, self._offset(number)))
        key = query_key(self._fragment.query, self._checkpoint)
        result = TailResult(delivered={self._sink: written})
        self._ledger.append(
            batch_lines(key, self._fragment, read_batch(self._checkpoint, number), result, self._layout.lost)
        )
        write_atomically(self._checkpoint / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
        self._steer()
        return True

    def _begin(self) -> None:
        for name in ("offsets", "commits"):
            (self._checkpoint / name).mkdir(parents=True, exist_ok=True)
        if not (self._checkpoint / "metadata").exists():
            write_atomically(self._checkpoint / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        note_tasks(self._checkpoint, 1)
        create_log(self._output, COLUMNS)
        if not self._layout.decision.exists():
            self._steer()

    def _offset(self, number: int) -> dict[str, Any]:
        text = (self._checkpoint / "offsets" / str(number)).read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text.splitlines()[2])
        return found

    def _read(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        batches = [batch for part in self._reader.partitions(start, end) for batch in self._reader.read(part)]
        time.sleep(WORK_SECONDS)
        names = {"value": "value", "_id": "origin_id", "_weight": "weight"}
        if not batches:
            return pa.table({name: [] for name in names.values()})
        table = pa.Table.from_batches(batches)
        return pa.table({to: table.column(name) for name, to in names.items()})

    def _write(self, number: int, rows: pa.Table) -> Written:
        if rows.num_rows:
            key = query_key(self._fragment.query, self._checkpoint)
            with LogWriter(self._output, compact_every=16) as writer:
                writer.append(rows, tag=f"{tag_of(key, self._sink, number)}:0")
        return Written(np.full(1, -1, np.int64), np.full(1, rows.num_rows, np.int64))

    def _steer(self) -> None:
        """Another keep for the batches to come: what a controller would do, without its reasons."""
        keep = StreamDecision(self._rng.randrange(PPM // 10, PPM))
        decision = JobDecision(
            mode="enforce",
            salt=self._rng.randrange(1000),
            streams={self._stream: keep},
            issued_us=time.time_ns() // 1000,
        )
        write_decision(self._layout.decision, named(decision))


def run_plain_job(folder: str) -> None:
    """The body of the process: the network file in the folder, on the state in it, until it is killed."""
    PlainJob(load_network(Path(folder) / "network.yaml"), RunLayout(Path(folder) / "state")).run()
