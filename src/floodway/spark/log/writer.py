"""Appending to a log: one writer a partition, each append one segment, all of it or nothing."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa

from floodway.spark.log.compact import compact, is_due
from floodway.spark.log.errors import LockedError, LogError, SchemaError
from floodway.spark.log.listing import LOCK, Listing
from floodway.spark.log.meta import LogMeta, open_log
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP, schema_text
from floodway.spark.log.segments import (
    TEMPORARY,
    SegmentName,
    cannot_append,
    hash_tag,
    open_segment,
    sync_path,
    write_segment,
)
from floodway.spark.log.tag_index import complete, positions, prune

COMPACT_EVERY = 64
_MERGED_SHARE = 8
"""No merged segment is larger than this part of what may be kept, or retention would let too much go at once."""
_RETIRE_EVERY_MICROS = 1_000_000


def now_micros() -> int:
    """Wall-clock microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much a partition keeps: whole oldest segments go when it holds more bytes or older segments than this.

    `unread_from` are positions by partition: no tuple from there on goes, however large or old; nothing goes from a
    partition that it leaves out. None: readers are not waited for.
    """

    max_bytes: int | None = None
    max_age_seconds: float | None = None
    unread_from: Mapping[int, int] | None = None

    def may_go(self, name: SegmentName, partition: int) -> bool:
        """Whether nobody waits for a segment any more."""
        return self.unread_from is None or name.end <= self.unread_from.get(partition, 0)


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append went: tuples [base, base + count), or nowhere because its tag was there already.

    `bytes` is what was written, before any of it was merged.
    """

    base: int
    count: int
    duplicate: bool = False
    bytes: int = 0


@dataclass
class _Partition:
    listing: Listing
    lock: int
    end: int
    retired_at: int = 0
    appends: int = 0
    tags: set[str] = field(default_factory=set)

    def path(self, name: SegmentName) -> Path:
        return self.listing.folder / str(name)

    def size(self, name: SegmentName) -> int:
        return self.path(name).stat().st_size


class LogWriter:
    """Appends to the partitions it touches first; a second writer of a partition is refused.

    `sync` flushes each segment to the disk before it becomes visible (about 4 ms); without it a crash of the machine,
    not of the process, may lose the newest segments. Small segments are merged when about `compact_every` of them have
    come together, by whichever writers (0: never). `clock` gives the append time in microseconds.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        retention: Retention | None = None,
        sync: bool = True,
        compact_every: int = COMPACT_EVERY,
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

    def __exit__(self, *_: object) -> None:
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
        tags = {} if tag is None else {tag: table.num_rows}
        name = write_segment(state.listing.folder, table, state.end, tags=tags, sync=self._sync)
        size = state.size(name)
        state.end = name.end
        if tag is not None:
            state.tags.add(tag)
        self._tidy(state, partition)
        return Appended(name.base, name.count, bytes=size)

    def _tidy(self, state: _Partition, partition: int) -> None:
        """Merge and retire, if it is time; the first append of a writer looks, since many live for one append only."""
        every = self._compact_every
        if every and state.appends % every == 0:
            # The tuples are in the log: what cannot be merged now stays as it is, and is told when it is read.
            with suppress(LogError):
                if state.appends:
                    state.listing.refresh()
                if is_due(state.listing, every, self._most_merged()):
                    self.compact(partition)
        state.appends += 1
        now = self._clock()
        # Also at once after the clock was set back: the next time must not be as far away as the step was long.
        if self._retention is not None and not 0 <= now - state.retired_at < _RETIRE_EVERY_MICROS:
            state.retired_at = now
            self.retire(partition, self._retention)

    def compact(self, partition: int = 0) -> int:
        """Merge small segments, see `compact`; the number of segments merged."""
        listing = self._state(partition).listing
        return compact(listing, self.meta.stored_schema, sync=self._sync, most_bytes=self._most_merged())

    def _most_merged(self) -> int | None:
        limit = None if self._retention is None else self._retention.max_bytes
        return None if limit is None else limit // _MERGED_SHARE

    def end(self, partition: int = 0) -> int:
        """The number that the next tuple of the partition will get."""
        return self._state(partition).end

    def retire(self, partition: int, retention: Retention) -> int:
        """Delete whole oldest segments beyond the retention, never the newest; the number of tuples let go.

        A segment's age is the time since it was written, a merged one's that of its newest part.
        """
        state = self._state(partition)
        listing = state.listing
        listing.refresh()
        excess = 0
        if retention.max_bytes is not None:
            excess = sum(map(state.size, (*listing.chain, *listing.merged))) - retention.max_bytes
        oldest = None if retention.max_age_seconds is None else self._clock() / 1e6 - retention.max_age_seconds
        # Parts that a merged segment stands for go first: nobody needs them, and they would come back as the oldest.
        parts = list(listing.merged) if excess > 0 else []
        excess -= sum(map(state.size, parts))
        leaving: list[SegmentName] = []
        for name in listing.chain[:-1]:
            too_old = oldest is not None and state.path(name).stat().st_mtime < oldest
            if not (excess > 0 or too_old) or not retention.may_go(name, partition):
                break
            leaving.append(name)
            excess -= state.size(name)
        if leaving and not parts:
            parts = [name for name in listing.merged if name.end <= leaving[-1].end]
        for name in [*parts, *leaving]:
            state.path(name).unlink()
        if (parts or leaving) and self._sync:
            sync_path(listing.folder)
        if leaving:
            listing.refresh()  # a tag that has gone is not looked for where it was
            prune(listing.folder, leaving[-1].end, sync=self._sync)
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
        """Lock a partition, clear what a killed writer left, find the end."""
        folder = self.meta.partition_path(partition)
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise cannot_append(folder, error) from error
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
            if listing.torn:
                # Its numbers may have been read before it was torn: giving them out again would mix two
                # tuples up.
                raise LogError(
                    f"log {self.meta.path} partition {partition} has {listing.torn} torn segment(s)",
                    hint="Restore them from a copy, or move them away and accept the loss",
                )
            complete(folder, listing.chain, self.meta.stored_schema, sync=self._sync)
            return _Partition(listing, lock, listing.end)
        except BaseException:
            os.close(lock)
            raise

    def _has(self, state: _Partition, tag: str) -> bool:
        """Whether a tag was appended here, or lies in the segments whose names or index say that it might."""
        if tag in state.tags:
            return True
        digest, listing = hash_tag(tag), state.listing
        named = [name.base for name in reversed(listing.chain) if name.tag_hash == digest]
        maybe = [found for at in (*named, *positions(listing.folder, tag)) for found in listing.between(at, at + 1)]
        return any(tag in open_segment(state.path(name), name, self.meta.stored_schema).tagged for name in maybe)

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
