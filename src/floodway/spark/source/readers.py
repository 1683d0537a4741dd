"""The readers behind `format("floodway")`: streaming with the decision in the offset, and batch for audits.

Spark runs `latestOffset` and `partitions` in one Python process and `read` in others. Nothing is shared between them
but the offsets: `partitions` and `read` are pure functions of the journaled end offset, so a replay admits the same
tuples.

`spark.readStream.format("floodway")`: schema and readers.

floodway.spark.source.register(spark)
df = spark.readStream.format("floodway").option("path", "clicks.log").option("decision", "decision.json").load()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType
from typing_extensions import override

from floodway.errors import InputError
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.decision import DecisionFile, JobDecision, StreamDecision
from floodway.json_text import load_json
from floodway.spark.log import SchemaError, Span, schema_text
from floodway.spark.log.schema import EVENT_TIME
from floodway.spark.source.accounts import Part
from floodway.spark.source.admit import admit, output_schema, refused, split_ranges
from floodway.spark.source.backend import Backend, Piece, open_backend
from floodway.spark.source.cut import cut_batch
from floodway.spark.source.decode import ERROR
from floodway.spark.source.drops import sought_block
from floodway.spark.source.gate import wait_at
from floodway.spark.source.keys import parse_keys, with_keys
from floodway.spark.source.notes import LOST, MALFORMED, PassingOver, leave
from floodway.spark.source.offsets import Admission, BatchOffset, Range, WindowRule, parse_offset
from floodway.spark.source.options import SourceOptions, parse_options
from floodway.spark.source.windows import has_event_time, parse_drops, with_windows


class Slice(InputPartition):
    """What one task reads: ranges, the admission rule and the keeps of the arcs."""

    def __init__(self, ranges: list[Range], admission: Admission, arcs: Mapping[str, int | WindowRule]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.admission = admission
        self.arcs = arcs


class DroppedPart(InputPartition):
    """What one task reads of the dropped tuples of a batch, which is number `at` of those asked for."""

    def __init__(self, at: int, offset: BatchOffset, part: Part) -> None:
        super().__init__(part)
        self.at = at
        self.offset = offset
        self.part = part


def source_schema(payload: pa.Schema, options: SourceOptions) -> pa.Schema:
    """The columns that the options ask for."""
    return output_schema(payload, options.arcs, options.added, with_place=options.dropped is not None)


class _Reader:
    """What both readers share: options, the backend (opened where it is used) and the shape of the output."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._backend: Backend | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A backend may hold sockets and mappings: each process opens its own.
        return {**self.__dict__, "_backend": None, "_narrow": None}

    @property
    def backend(self) -> Backend:
        # Opened late: Spark hides what goes wrong while it builds a reader behind an error of its own.
        if self._backend is None:
            backend = open_backend(self.options)
            expected = source_schema(backend.payload, self.options)
            given = [(field.name, field.type) for field in self.arrow_schema]
            if given != [(field.name, field.type) for field in expected]:
                raise SchemaError(
                    "the schema given to the reader is not the source's",
                    hint="Leave .schema(...) out and use the option 'schema' to choose columns",
                )
            self._backend = backend
        return self._backend

    @property
    def stream(self) -> str:
        return self.options.stream or self.backend.stream

    def slices(self, batch: BatchOffset) -> list[Slice]:
        arcs = {
            arc: batch.window_rule(arc) if arc in batch.windows else batch.arc_keep(arc) for arc in self.options.arcs
        }
        parts = split_ranges(batch.ranges(), batch.admission, self.options.splits)
        return [Slice(part, batch.admission, arcs) for part in parts]

    def tuples(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return
        backend = PassingOver(self.backend, self._gone) if self.options.skip_lost else self.backend
        yield from admit(backend, partition.ranges, partition.admission, partition.arcs, self.arrow_schema)

    def _gone(self, partition: int, start: int, end: int) -> None:
        """A hole was passed over: nothing to do for who reads a batch once more."""

    def starting_positions(self) -> dict[int, int]:
        """The option startingOffsets as positions."""
        if self.options.starting == "earliest":
            return self.backend.earliest()
        if self.options.starting == "latest":
            return self.backend.latest()
        given = _positions(self.options.starting)
        return {partition: given.get(partition, first) for partition, first in self.backend.earliest().items()}


class FloodwayStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Admission control with a journaled decision."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._decisions: DecisionFile | None = None
        self._target: dict[int, int] | None = None
        self._ends: dict[int, int] | None = None
        self._narrow: Backend | None = None

    @override
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        positions = self.starting_positions()
        return BatchOffset(self.stream, positions, positions).to_json()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        """maxTuplesPerBatch, or everything. Spark asks for it when all sources of a query have been made."""
        if self.options.gate is not None:
            self.backend.latest()  # what is listed now need not be listed while nobody runs the query
            wait_at(self.options.gate)
        maximum = self.options.max_tuples
        return ReadAllAvailable() if maximum is None else ReadMaxRows(maximum)

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Cut the next batch and decide its keep; `start` itself when nothing new has come."""
        previous = parse_offset(start)
        spans = self.backend.spans(previous.end)
        self._ends = {partition: span.end for partition, span in spans.items()}
        if self._target is not None:
            spans = {p: _until(span, self._target.get(p, 0)) for p, span in spans.items()}
        if isinstance(limit, ReadMinRows) and self._target is None:
            waiting = sum(span.end - previous.end.get(p, 0) for p, span in spans.items())
            if waiting < limit.min_rows:
                return start
        elif not isinstance(limit, (ReadAllAvailable, ReadMaxRows, ReadMinRows)):
            raise InputError(f"read limit {limit} is not supported", hint="Use maxTuplesPerBatch")
        batch = cut_batch(
            previous,
            spans,
            self._decision(previous),
            arcs=self.options.arcs,
            limit=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            skip_lost=self.options.skip_lost,
            where=str(self.options.path or self.options.topic),
            silent=self._decisions is not None and self._decisions.silent,
            first_since=self._first_within,
        )
        if batch is None:
            return start
        if self.options.topic is not None and batch.drop == "range":
            read = [end - first for _, first, end in batch.ranges()]
            batch = replace(batch, block=sought_block(max(read, default=0)))
        if self.options.windows is not None:
            batch = with_windows(previous, batch, parse_drops(self.options.windows), self._event_times)
        if self.options.keys is not None:
            drops = parse_keys(self.options.keys)
            batch = with_keys(batch, drops, lambda span: self._columns(span, drops.columns))
        return batch.to_json()

    def _first_within(self, partition: int, span: Span, age_us: int) -> int:
        """The first tuple of this age; a clock that was set makes none older."""
        return self.backend.first_since(partition, span, int(PROCESS_CLOCK.lowest(age_us / 1e6) * 1e6))

    def _event_times(self, span: Range) -> Iterator[Piece]:
        """The event times of a range."""
        if not has_event_time(self.backend.payload):
            raise SchemaError(
                f"{self.stream} has no column {EVENT_TIME!r} of type timestamp to drop windows by",
                hint="Let the operators before the aggregate keep it",
            )
        return self._columns(span, [EVENT_TIME])

    def _columns(self, span: Range, names: Sequence[str]) -> Iterator[Piece]:
        """Some columns of a range, of a log; of a topic all, so that malformed records are the same."""
        if self._narrow is None:
            payload = self.backend.payload
            for name in names:
                if name not in payload.names:
                    raise SchemaError(
                        f"{self.stream} has no column {name!r}", hint=f"It has {', '.join(payload.names)}"
                    )
            narrow = replace(self.options, schema=schema_text(pa.schema([payload.field(name) for name in names])))
            self._narrow = open_backend(narrow) if self.options.topic is None else self.backend
        partition, start, end = span
        return self._narrow.read(partition, [(start, end)])

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends seen at the last cut, for the backlog in the query's progress."""
        return None if self._ends is None else {"pos": {str(p): end for p, end in self._ends.items()}}

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing newer than this moment is read."""
        self._target = self.backend.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch, from its end offset alone."""
        return [] if start == end else list(self.slices(parse_offset(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The kept tuples of one task."""
        told = ERROR not in self.arrow_schema.names
        for batch in self.tuples(partition):
            if not told and batch.column(ERROR).null_count < batch.num_rows and isinstance(partition, Slice):
                for part in partition.ranges:
                    self._note(MALFORMED, *part)
                told = True
            yield batch

    @override
    def _gone(self, partition: int, start: int, end: int) -> None:
        self._note(LOST, partition, start, end)

    def _note(self, kind: str, partition: int, start: int, end: int) -> None:
        """A note for the ledger; without a decision file nobody keeps one."""
        folder = self.options.notes or (self.options.decision.parent if self.options.decision else None)
        if folder is not None:
            leave(folder / kind, self.stream, partition, start, end)

    def _decision(self, previous: BatchOffset) -> JobDecision:
        """The file's; a file that is bad from the start leaves the decision of the last batch in force."""
        if self._decisions is None:
            journaled = JobDecision(
                plan=previous.plan,
                mode=previous.mode,
                salt=previous.salt,
                streams={previous.stream: StreamDecision(previous.keep_ppm)},
                arcs=previous.arcs,
                drop=previous.drop,
            )
            self._decisions = DecisionFile(
                self.options.decision, initial=None if self.options.decision is None else journaled
            )
        return self._decisions.read()


class FloodwayBatchReader(_Reader, DataSourceReader):
    """Reads a range once: all of it, exactly what a journaled offset admitted (`endingOffsets`), or what it did not."""

    def partitions(self) -> list[InputPartition]:
        """The tasks of the read; an audit's start must be the one that the journaled offset names."""
        if self.options.dropped is not None:
            offsets = [parse_offset(one) for one in load_json(self.options.dropped)]
            return [DroppedPart(at, offset, part) for at, offset in enumerate(offsets) for part in offset.settled()]
        if self.options.ending is None:
            ends = self.backend.latest()
            return list(self.slices(BatchOffset(self.stream, self.starting_positions(), ends)))
        batch = parse_offset(self.options.ending)
        if self.options.starting not in ("earliest", "latest"):
            given = _positions(self.options.starting)
            if any(given.get(partition, 0) != start for partition, start in batch.start.items()):
                raise InputError(
                    "startingOffsets is not where the batch of endingOffsets starts",
                    hint="Leave startingOffsets out: a journaled offset names its own start",
                )
        return list(self.slices(batch))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The tuples of one task."""
        if not isinstance(partition, DroppedPart):
            return self.tuples(partition)
        backend = PassingOver(self.backend, self._gone)
        return refused(backend, partition.offset, partition.part, partition.at, self.arrow_schema)


def _until(span: Span, target: int) -> Span:
    return Span(min(span.first, target), min(span.end, target))


def _positions(text: str) -> dict[int, int]:
    """Positions from JSON: `{"0": 5}`, or a journaled offset, whose end is meant."""
    try:
        body = load_json(text)
        if isinstance(body, Mapping) and "v" in body:
            return dict(parse_offset(body).end)
        return {int(partition): int(position) for partition, position in body.items()}
    except (ValueError, AttributeError, TypeError):
        raise InputError(
            f"startingOffsets {text!r} is not understood",
            hint='Use earliest, latest or positions such as {"0": 100}',
        ) from None


class FloodwaySource(DataSource):
    """The Floodway source; see `floodway.spark.source.options` for what can be set."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "floodway"

    def schema(self) -> StructType:
        """The payload of the log or of the option, then `_id`, `_arrival`, `_weight`, `_keep:<arc>`."""
        options = parse_options(self.options)
        return from_arrow_schema(source_schema(open_backend(options).payload, options))

    @override
    def streamReader(self, schema: StructType) -> FloodwayStreamReader:
        """For `readStream`."""
        return FloodwayStreamReader(parse_options(self.options), schema)

    def reader(self, schema: StructType) -> FloodwayBatchReader:
        """For `read`."""
        return FloodwayBatchReader(parse_options(self.options), schema)
