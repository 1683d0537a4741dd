"""The sources of a fragment's query: how each is read, what of it is malformed, what it dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.options.options import OnLoss
from floodway.network.model import Network
from floodway.spark.log import Retention
from floodway.spark.log.inputs import open_input, source_options
from floodway.spark.log.kafka_links import is_kafka_link, is_topic, link_schema
from floodway.spark.log.meta import META
from floodway.spark.query.dead_letters import DeadLetters, has_dead_letters, well_formed
from floodway.spark.query.fragment_windows import FragmentWindows
from floodway.spark.query.fragments import Fragment, SourceSpec, inner_arcs, is_link
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.side_output import dropped_sample, save_sample
from floodway.spark.query.sinks import QUEUE
from floodway.spark.source.backend import open_backend
from floodway.spark.source.drops import SEQUENCE_BITS
from floodway.spark.source.gone import PassingOver
from floodway.spark.source.keys import KeyDrops
from floodway.spark.source.options import parse_options
from floodway.spark.source.windows import drops_text


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
