"""Appending to a log: one writer a partition, each append one segment, all of it or nothing."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from floodway.spark.log.compact import compact
from floodway.spark.log.errors import LockedError, LogError, SchemaError
from floodway.spark.log.listing import LOCK, Listing
from floodway.spark.log.meta import LogMeta, open_log
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP, schema_text
from floodway.spark.log.segments import (
    MANY_TAGS,
    TEMPORARY,
    SegmentName,
    hash_tag,
    open_segment,
    sync_path,
    write_segment,
)

_RETIRE_EVERY_MICROS = 1_000_000


def now_micros() -> int:
    """Wall-clock microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much a partition keeps: whole oldest segments go when it holds more bytes or older segments than this."""

    max_bytes: int | None = None
    max_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append went: tuples [base, base + count), or nowhere because its tag was there already."""

    base: int
    count: int
    duplicate: bool = False


@dataclass
class _Partition:
    listing: Listing
    lock: int
    end: int
    tags: dict[str, set[str]]
    retired_at: int
    appends: int = 0


class LogWriter:
    """Appends to the partitions it touches first; a second writer of a partition is refused.

    `sync` flushes each segment to the disk before it becomes visible (about 4 ms); without it a crash of the machine,
    not of the process, may lose the newest segments. Small segments are merged every `compact_every` appends (0:
    never). `clock` gives the append time in microseconds.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        retention: Retention | None = None,
        sync: bool = True,
        compact_every: int = 256,
        clock: Callable[[], int] = now_micros,
    ) -> None:
        self.meta: LogMeta = open_log(path)
        self._retention = retention
        self._sync = sync
        self._compact_every = compact_every
        self._clock = clock
        self._partitions: dict[int, _Partition] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self,
        data: pa.RecordBatch | pa.Table,
        partition: int = 0,
        *,
        arrival: int | pa.Array | None = None,
        tag: str | None = None,
    ) -> Appended:
        """Append all tuples of `data` as one segment.

        `arrival` is the append time: one for all in microseconds UTC, one a tuple as a timestamp array, or the
        clock's. With a `tag` the append happens once: a tag that the partition holds already (also after a restart,
        until its segment is retired) makes it a duplicate, and nothing is written. This makes a sink that repeats a
        batch exactly-once.
        """
        table = self._fitted(data)
        state = self._state(partition)
        if tag is not None and self._has(state, tag):
            return Appended(state.end, 0, duplicate=True)
        if table.num_rows == 0:
            return Appended(state.end, 0)
        table = table.append_column(self.meta.stored_schema.field(ARRIVAL), self._arrivals(arrival, table.num_rows))
        tags = () if tag is None else (tag,)
        name = write_segment(state.listing.folder, table, state.end, tags=tags, sync=self._sync)
        state.end = name.end
        if tag is not None:
            state.tags.setdefault(name.tag_hash, set()).add(tag)
        state.appends += 1
        if self._compact_every and state.appends % self._compact_every == 0:
            self.compact(partition)
        now = self._clock()
        if self._retention is not None and now - state.retired_at >= _RETIRE_EVERY_MICROS:
            state.retired_at = now
            self.retire(partition, self._retention)
        return Appended(name.base, name.count)

    def compact(self, partition: int = 0) -> int:
        """Merge small segments, see `compact`; the number of segments merged."""
        return compact(self._state(partition).listing, self.meta.stored_schema, sync=self._sync)

    def end(self, partition: int = 0) -> int:
        """The number that the next tuple of the partition will get."""
        return self._state(partition).end

    def retire(self, partition: int, retention: Retention) -> int:
        """Delete whole oldest segments beyond the retention, never the newest; the number of tuples let go.

        A segment's age is the time since it was written.
        """
        state = self._state(partition)
        state.listing.refresh()
        sizes = [(name, (state.listing.folder / str(name)).stat()) for name in state.listing.chain]
        total = sum(status.st_size for _, status in sizes)
        oldest = None if retention.max_age_seconds is None else self._clock() / 1e6 - retention.max_age_seconds
        leaving: list[SegmentName] = []
        for name, status in sizes[:-1]:
            too_big = retention.max_bytes is not None and total > retention.max_bytes
            too_old = oldest is not None and status.st_mtime < oldest
            if not (too_big or too_old):
                break
            leaving.append(name)
            total -= status.st_size
        if leaving:
            # Parts that a merged segment stands for go first, or they would come back as the oldest.
            parts = [name for name in state.listing.merged if name.end <= leaving[-1].end]
            for name in [*parts, *leaving]:
                (state.listing.folder / str(name)).unlink()
        if leaving and self._sync:
            sync_path(state.listing.folder)
        return sum(name.count for name in leaving)

    def close(self) -> None:
        """Give the partitions free for another writer."""
        for state in self._partitions.values():
            os.close(state.lock)
        self._partitions.clear()

    def _state(self, partition: int) -> _Partition:
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = self._take(partition)
        return state

    def _take(self, partition: int) -> _Partition:
        """Lock a partition, clear what a killed writer left, find the end and the tags."""
        folder = self.meta.partition_path(partition)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockedError(
                    f"log {self.meta.path} partition {partition} has a writer already",
                    hint="Stop the other writer, or write to another partition",
                ) from None
            for leftover in folder.glob(f"{TEMPORARY}*"):
                leftover.unlink()
            listing = Listing(folder)
            listing.refresh()
            if listing.skipped.torn:
                # Its numbers may have been read before it was torn: giving them out again would mix two
                # tuples up.
                raise LogError(
                    f"log {self.meta.path} partition {partition} has {listing.skipped.torn} torn segment(s)",
                    hint="Restore them from a copy, or move them away and accept the loss",
                )
            return _Partition(listing, lock, listing.end, self._read_tags(listing), self._clock())
        except BaseException:
            os.close(lock)
            raise

    def _read_tags(self, listing: Listing) -> dict[str, set[str]]:
        """The tags there by their hashes; those that a name gives are read only when a hash meets its like."""
        tags: dict[str, set[str]] = {}
        for name in listing.chain:
            if name.tag_hash == MANY_TAGS:
                path = listing.folder / str(name)
                for tag in open_segment(path, name, self.meta.stored_schema).tags:
                    tags.setdefault(hash_tag(tag), set()).add(tag)
            elif name.tag_hash:
                tags.setdefault(name.tag_hash, set())
        return tags

    def _has(self, state: _Partition, tag: str) -> bool:
        tags = state.tags.get(hash_tag(tag))
        if tags is None or tag in tags:
            return tags is not None
        state.listing.refresh()
        for name in state.listing.chain:
            if name.tag_hash == hash_tag(tag):
                path = state.listing.folder / str(name)
                tags.update(open_segment(path, name, self.meta.stored_schema).tags)
        return tag in tags

    def _fitted(self, data: pa.RecordBatch | pa.Table) -> pa.Table:
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        schema = self.meta.schema
        if table.schema.equals(schema):
            return table.replace_schema_metadata(None)
        if sorted(table.column_names) == sorted(schema.names):
            try:
                return table.select(schema.names).cast(schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
                raise SchemaError(
                    f"tuples do not fit log {self.meta.path}: {error}",
                    hint=f"Give columns as '{schema_text(schema)}'",
                ) from None
        raise SchemaError(
            f"tuples with columns {', '.join(table.column_names)} do not fit log {self.meta.path}",
            hint=f"Give columns as '{schema_text(schema)}'",
        )

    def _arrivals(self, arrival: int | pa.Array | None, count: int) -> pa.Array:
        if arrival is None or isinstance(arrival, int):
            micros = self._clock() if arrival is None else arrival
            return pa.repeat(pa.scalar(micros, pa.int64()).cast(TIMESTAMP), count)
        times = arrival.cast(TIMESTAMP)
        if len(times) != count or times.null_count:
            raise SchemaError(
                f"{len(times)} arrival times with {times.null_count} null(s) for {count} tuples",
                hint="Give one a tuple, or none",
            )
        return times
