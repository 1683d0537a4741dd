"""The sources of a fragment's query: how each is read, what of it is malformed, what it dropped.

A capped sample of what a source dropped is for people who want to see what they lose. Which tuples a batch dropped is a
function of its offset, so the sample is read afterwards, on the side, and the drop itself stays as cheap as it is: at
most `cap` tuples a batch are ever read again. The log they are saved in holds `MOST_BYTES` at most: the newest samples
stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.options.options import OnLoss
from floodway.network.model import Network
from floodway.spark.log import LogWriter, Retention, create_log
from floodway.spark.log.inputs import open_input, source_options
from floodway.spark.log.kafka_links import is_kafka_link, is_topic, link_schema
from floodway.spark.log.meta import META
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.query.dead_letters import DeadLetters, has_dead_letters, well_formed
from floodway.spark.query.fragment_windows import FragmentWindows
from floodway.spark.query.fragments import Fragment, SourceSpec, inner_arcs, is_link
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import QUEUE
from floodway.spark.source.accounts import Part
from floodway.spark.source.backend import Readable, open_backend
from floodway.spark.source.complement import kept_of
from floodway.spark.source.drops import SEQUENCE_BITS, tuple_ids
from floodway.spark.source.keys import KeyDrops, KeyFates
from floodway.spark.source.notes import PassingOver
from floodway.spark.source.offsets import BatchOffset, KeyRule, WindowRule
from floodway.spark.source.options import parse_options
from floodway.spark.source.windows import drops_text, passing

MOST_BYTES = 64 << 20
"""All that a side output may take up on the disk, a source."""


def dropped_sample(backend: Readable, offset: BatchOffset, cap: int) -> pa.Table | None:
    """The first `cap` dropped tuples of a batch with their `_id`s as `origin_id`; None if nothing was dropped."""
    pieces: list[pa.Table] = []
    for part in offset.settled():
        partition = part.partition
        room = cap - sum(piece.num_rows for piece in pieces)
        rule = offset.admission
        if rule.windows is not None and part.zone == "read":
            sequence = _unwhole(backend, rule.windows, part)[:room]
        elif rule.keys is not None and part.zone == "read":
            sequence = _over(backend, rule.keys, rule.salt, part)[:room]
        else:
            positions = np.arange(part.start, part.end, dtype=np.int64)
            sequence = positions[~kept_of(rule, part, positions)][:room]
        for ids, batch in backend.read(partition, [(int(s), int(s) + 1) for s in sequence]):
            table = pa.Table.from_batches([batch])
            pieces.append(table.append_column("origin_id", pa.array(tuple_ids(partition, ids))))
    return pa.concat_tables(pieces).combine_chunks() if pieces else None


def save_sample(path: Path, sample: pa.Table, *, stream: str, tag: str, retention: Retention | None = None) -> None:
    """Append a batch's sample to the side output at `path`, once a tag; the oldest samples go when it is full."""
    body = sample.drop_columns([ARRIVAL])
    log = create_log(path, body.schema, stream=stream)
    kept = retention or Retention()
    most = MOST_BYTES if kept.max_bytes is None else min(MOST_BYTES, kept.max_bytes)
    with LogWriter(log.path, retention=replace(kept, max_bytes=most)) as writer:
        writer.append(body, arrival=sample.column(ARRIVAL).combine_chunks(), tag=tag)


def _unwhole(backend: Readable, rule: WindowRule, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    pieces = backend.read(part.partition, [(part.start, part.end)])
    gone = [sequence[~passing(rule, tuple_ids(part.partition, sequence), batch)] for sequence, batch in pieces]
    return np.concatenate(gone) if gone else np.zeros(0, dtype=np.int64)


def _over(backend: Readable, rule: KeyRule, salt: int, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    fates = KeyFates(rule, salt)
    pieces = backend.read(part.partition, [(part.start, part.end)])
    gone = [sequence[~fates.of_piece(tuple_ids(part.partition, sequence), batch)[0]] for sequence, batch in pieces]
    return np.concatenate(gone) if gone else np.zeros(0, dtype=np.int64)


class FragmentSources:
    """The logs and topics that one query reads, by their places in the fragment."""

    def __init__(
        self,
        spark: SparkSession,
        network: Network,
        fragment: Fragment,
        layout: RunLayout,
        tasks: int,
        on_loss: OnLoss,
        retention: Retention | None,
        gate: Path | None = None,
        last_tuples: int | None = None,
        windows: FragmentWindows | None = None,
        keys: Mapping[str, KeyDrops] | None = None,
    ) -> None:
        self.fragment = fragment
        self.tasks = tasks
        self._spark = spark
        self._network = network
        self._layout = layout
        self._on_loss = on_loss
        self._retention = retention
        self._gate = gate
        self._last_tuples = last_tuples
        self._windows = windows
        self._keys = keys or {}
        self._letters: dict[str, DeadLetters] = {}
        self._schemas: dict[str, str | None] = {}

    def create_dead_letter_logs(self) -> None:
        """Make logs for malformed records, for the sources that can have some; known after `sink_frames`."""
        for letters in self._letters.values():
            letters.create(self.tasks)

    def dead_letters(self, journal: JournaledBatch) -> list[tuple[str, DeadLetters]]:
        """The malformed records of the sources that a batch brought news of, by place."""
        return [(at, letters) for at, letters in self._letters.items() if at in journal.offsets]

    def missing(self) -> list[str]:
        """The sources whose log is not there yet (a Kafka topic is taken to be, unless another node makes it)."""
        return [spec.name for spec in self.fragment.sources if not self._is_there(spec)]

    def _is_there(self, spec: SourceSpec) -> bool:
        address = self._layout.source(self._network, self.fragment, spec)
        if is_kafka_link(spec.producer, address):
            return self._link_schema(address) is not None
        return is_topic(address) or (Path(address) / META).exists()

    def _link_schema(self, address: str) -> str | None:
        """The columns of a link over Kafka, asked for until its writer has told them."""
        if self._schemas.get(address) is None:
            self._schemas[address] = link_schema(address)
        return self._schemas[address]

    def read(self, spec: SourceSpec) -> DataFrame:
        """The streaming DataFrame of one source, without its malformed records."""
        options = self._options(spec)
        frame = self._spark.readStream.format("floodway").options(**options).load()
        if has_dead_letters(frame):
            folder = self._layout.dead_letters(spec)
            self._letters[spec.location or spec.name] = DeadLetters(
                options, self._layout.notes, folder, self._retention
            )
        if "weight" in frame.columns and is_link(spec):  # came through another node, which may drop too
            frame = frame.withColumn("_weight", fn.col("_weight") * fn.col("weight")).drop("weight")
        if spec.location is not None and any(s.deadline is not None for s in self._network.streams.values()):
            partition = fn.shiftrightunsigned("_id", SEQUENCE_BITS)
            frame = frame.withColumn(QUEUE, fn.concat(fn.lit(f"{spec.location}/"), partition.cast("string")))
        return well_formed(frame)

    def _options(self, spec: SourceSpec) -> dict[str, str]:
        """The reader's options for one source."""
        address = self._layout.source(self._network, self.fragment, spec)
        options = {
            "stream": spec.location or spec.name,
            "decision": str(self._layout.decision),
            "notes": str(self._layout.notes),
            "arcs": ",".join(map(str, inner_arcs(self._network, self.fragment))),
            "splits": str(self.tasks),
            "onLoss": self._on_loss,
        }
        if self._windows is not None and (drops := self._windows.of_source(spec.name)):
            options["windows"] = drops_text(drops)
        if spec.location is not None and spec.producer in self._keys:
            options["keys"] = self._keys[spec.producer].text()
        if self._gate is not None:
            options["gate"] = str(self._gate)
        if self._last_tuples is not None:
            backend = open_input(address)
            first = backend.earliest()
            starts = {p: max(first.get(p, 0), end - self._last_tuples) for p, end in backend.latest().items()}
            options["startingOffsets"] = json.dumps(starts)
        if is_kafka_link(spec.producer, address):
            return {**options, **source_options(address, self._link_schema(address)), "valueFormat": "arrow"}
        schema = self._network.streams[spec.producer].schema if is_topic(address) else None
        return {**options, **source_options(address, schema)}

    def save_dropped(self, journal: JournaledBatch, tag: str, most: int) -> None:
        """Append a capped sample of what each source dropped to its side output."""
        for spec in self.fragment.sources:
            offset = journal.offsets.get(spec.location or spec.name)
            if offset is None or spec.location is None:
                continue
            # What has gone meanwhile cannot be shown any more: a sample stops nothing.
            backend = PassingOver(open_backend(parse_options(self._options(spec))), lambda *_: None)
            sample = dropped_sample(backend, offset, most)
            if sample is not None:
                save_sample(
                    self._layout.dropped(spec),
                    sample,
                    stream=spec.name,
                    tag=tag,
                    retention=self._retention,
                )
