"""What the source reads from: positions and tuples, of an embedded log or of Kafka, behind one shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodway.spark.log import LogReader, SchemaError, Span, parse_schema, schema_text
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.source.options import SourceOptions

Piece = tuple[npt.NDArray[np.int64], pa.RecordBatch]
"""Sequence numbers, and the payload columns with `_arrival` last."""


class Readable(Protocol):
    """What tuples are read from."""

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        """The tuples of the ranges [start, end), in order."""


class Backend(Readable, Protocol):
    """A partitioned, append-only sequence of tuples."""

    @property
    def stream(self) -> str:
        """The name the stream has if no option gives one."""

    @property
    def payload(self) -> pa.Schema:
        """The columns before those that the source adds."""

    def earliest(self) -> dict[int, int]:
        """The first position of each partition."""

    def latest(self) -> dict[int, int]:
        """The position after the last tuple of each partition."""

    def first_since(self, partition: int, span: Span, time_us: int) -> int:
        """The first position of the span that arrived at this time (µs since 1970) or later; its end if none did."""

    def spans(self, starts: Mapping[int, int]) -> dict[int, Span]:
        """What can be read from `starts` on without a hole; a start below `first` has lost tuples."""


class LogBackend:
    """An embedded log. The option `schema` may name some of its columns: the others are not read."""

    def __init__(self, options: SourceOptions) -> None:
        if options.path is None:
            raise ValueError("a log needs a path")
        self._reader = LogReader(options.path)
        self._payload = _projected(self._reader, options.schema)

    @property
    def stream(self) -> str:
        """As the log's description says."""
        return self._reader.meta.stream

    @property
    def payload(self) -> pa.Schema:
        """The log's columns, or those of them that the option names."""
        return self._payload

    def earliest(self) -> dict[int, int]:
        """The oldest position that retention has left."""
        return self._reader.earliest_positions()

    def latest(self) -> dict[int, int]:
        """The end of each partition."""
        return self._reader.end_positions()

    def first_since(self, partition: int, span: Span, time_us: int) -> int:
        """By halving: one tuple is looked at in each step, and the first alone where that is young enough."""
        low, high, at = span.first, span.end, span.first
        while low < high:
            if self._arrival_us(partition, at) < time_us:
                low = at + 1
            else:
                high = at
            at = (low + high) // 2
        return low

    def _arrival_us(self, partition: int, position: int) -> int:
        batch = next(self._reader.read(partition, position, position + 1))
        arrival: int = batch.column(ARRIVAL).cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()
        return arrival

    def spans(self, starts: Mapping[int, int]) -> dict[int, Span]:
        """From the listing alone."""
        return self._reader.spans(starts)

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        """Zero-copy slices; ranges between the runs are never touched."""
        names = [*self._payload.names, ARRIVAL]
        whole = names == self._reader.meta.stored_schema.names
        for start, end in runs:
            at = start
            for batch in self._reader.read(partition, start, end):
                rows = batch.num_rows
                yield np.arange(at, at + rows, dtype=np.int64), batch if whole else batch.select(names)
                at += rows


def _projected(reader: LogReader, ddl: str | None) -> pa.Schema:
    """The log's columns that `ddl` names, each with the type it has there."""
    there = reader.meta.schema
    if ddl is None:
        return there
    wanted = parse_schema(ddl)
    for column in wanted:
        found = there.field(column.name) if column.name in there.names else None
        if found is None or not found.type.equals(column.type):
            raise SchemaError(
                f"schema option '{ddl}' does not fit log {reader.meta.path}: column {column.name!r} is "
                f"{'not there' if found is None else schema_text(pa.schema([found]))}",
                hint=f"The log has '{schema_text(there)}'",
            )
    return pa.schema([there.field(name) for name in wanted.names])


def open_backend(options: SourceOptions) -> Backend:
    """The log or the topic that the options name."""
    if options.topic is None:
        return LogBackend(options)
    from floodway.spark.source.kafka import KafkaBackend

    return KafkaBackend(options)
