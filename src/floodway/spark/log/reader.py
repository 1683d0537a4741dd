"""Reading a log: positions from the listing, tuples as zero-copy slices of memory-mapped segments.

What lies in a log under which tag, through all compactions, and what retention took: for those who reconcile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from floodway.spark.log.errors import MissingLogError, PositionError
from floodway.spark.log.listing import Listing, Skipped, Span
from floodway.spark.log.meta import LogMeta, open_log
from floodway.spark.log.segments import Segment, SegmentName, open_segment


@dataclass(frozen=True, slots=True)
class Tally:
    """Tuples by tag, those without one, and by partition those that are retired: the first number there is tells.

    An append is retired whole or not at all: a tag that is there has all its tuples. `begins` says by tag in which
    partition and where its tuples begin, `ends` where each partition ends; `torn` are segments.
    """

    tagged: Mapping[str, int]
    untagged: int
    retired: Mapping[int, int]
    begins: Mapping[str, tuple[int, int]]
    ends: Mapping[int, int]
    torn: int


def tally(path: Path | str, since: Mapping[int, int] | None = None) -> Tally:
    """Count a log's tuples from the metadata of its segments; no column is read.

    With `since` (by partition, where an append begins) only what lies there and later is counted and looked at.

    >>> import tempfile, pyarrow as pa
    >>> from floodway.spark.log import LogWriter, create_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = create_log(folder, "id bigint")
    ...     with LogWriter(folder) as writer:
    ...         _ = writer.append(pa.record_batch({"id": [7, 8, 9]}), tag="q:0:0")
    ...         _ = writer.append(pa.record_batch({"id": [1]}))
    ...     counts, later = tally(folder), tally(folder, {0: 3})
    >>> counts.tagged, counts.untagged, counts.retired, counts.begins, counts.ends
    ({'q:0:0': 3}, 1, {0: 0}, {'q:0:0': (0, 0)}, {0: 4})
    >>> later.tagged, later.untagged
    ({}, 1)
    """
    meta = open_log(path)
    tagged: Counter[str] = Counter()
    begins: dict[str, tuple[int, int]] = {}
    retired, ends = {}, {}
    held = torn = 0
    for partition in range(meta.partitions):
        listing = Listing(meta.partition_path(partition))
        start = 0 if since is None else since.get(partition, 0)
        listing.refresh()
        listing.check_all(start)
        retired[partition], ends[partition] = listing.earliest, listing.end
        torn += listing.torn
        for name in listing.between(start, listing.end):
            held += name.end - max(name.base, start)
            at = name.base
            # A merged segment names its tags in the order of their tuples, which tells those before `start`.
            for tag, count in _tags(listing, name, meta.stored_schema).items():
                if at >= start:
                    tagged[tag] += count
                    begins.setdefault(tag, (partition, at))
                at += count
    return Tally(dict(tagged), held - tagged.total(), retired, begins, ends, torn)


def _tags(listing: Listing, name: SegmentName, schema: pa.Schema) -> dict[str, int]:
    return open_segment(listing.folder / str(name), name, schema).tagged if name.tags else {}


_LOOKS = 3
"""How often a folder is looked at again before a tuple counts as missing."""


class LogReader:
    """Any number of readers may read a log while it is written.

    >>> import tempfile
    >>> from floodway.spark.log import LogWriter, create_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = create_log(folder, "id bigint")
    ...     with LogWriter(folder) as writer:
    ...         _ = writer.append(pa.record_batch({"id": [7, 8, 9]}))
    ...     reader = LogReader(folder)
    ...     print(reader.end_positions(), [b.column("id").to_pylist() for b in reader.read(0, 1, 3)])
    {0: 3} [[8, 9]]
    """

    def __init__(self, path: Path | str) -> None:
        self.meta: LogMeta = open_log(path)
        self._listings = {p: Listing(self.meta.partition_path(p)) for p in range(self.meta.partitions)}
        self._open: tuple[tuple[int, SegmentName], Segment] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Sent to Spark's Python workers: the mapping stays here, the listing is made anew there.
        return {"path": str(self.meta.path)}

    def __setstate__(self, state: Mapping[str, str]) -> None:
        LogReader.__init__(self, state["path"])

    def end_positions(self) -> dict[int, int]:
        """The position after the newest tuple of each partition; one scan of the folders."""
        return {partition: listing.end for partition, listing in self._refreshed()}

    def earliest_positions(self) -> dict[int, int]:
        """The oldest position of each partition that retention has left."""
        return {partition: listing.earliest for partition, listing in self._refreshed()}

    def spans(self, starts: Mapping[int, int]) -> dict[int, Span]:
        """For each partition what can be read from `starts` on without a hole; see `Listing.span`.

        A start beyond the end is an error: the log is not the one that the position was taken from.
        """
        spans = {}
        for partition, listing in self._refreshed():
            start = starts.get(partition, 0)
            span = listing.span(start)
            if start > listing.end or span.first > start:
                # Before a tuple counts as lost: a scan is no snapshot, and may have missed what was just merged.
                self._refresh(listing)
                span = listing.span(start)
            if start > listing.end:
                raise self._beyond(partition, start, listing.end)
            spans[partition] = span
        return spans

    def tuple_bytes(self, newest: int = 8) -> float | None:
        """Bytes per tuple in the newest segments of every partition; None where the log is empty."""
        found = [(listing.folder, name) for _, listing in self._refreshed() for name in listing.chain[-newest:]]
        size = sum((folder / str(name)).stat().st_size for folder, name in found)
        return size / sum(name.count for _, name in found) if found else None

    def skipped(self) -> Skipped:
        """Files that the last look at the folders did not take as data, over all partitions."""
        return sum((listing.skipped() for listing in self._listings.values()), start=Skipped())

    def gaps(self) -> dict[int, list[tuple[int, int]]]:
        """The holes between segments: per partition the ranges [from, to) that are missing. Looks at every segment."""
        for _, listing in self._refreshed():
            listing.check_all()
        return {
            partition: [
                (before.end, after.base)
                for before, after in zip(listing.chain, listing.chain[1:], strict=False)
                if after.base > before.end
            ]
            for partition, listing in self._listings.items()
        }

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The tuples [start, end) of one partition: payload columns and `_arrival`, in order, nothing left out.

        Raises PositionError when a tuple of the range is retired or missing, SegmentError for a segment that is not
        what its name says. Touches only the segments and record batches that hold the range.
        """
        folder = self.meta.partition_path(partition)
        listing = self._listings[partition]
        schema = self.meta.stored_schema
        at, looks = start, 0
        while at < end:
            try:
                self._check(partition, at, end)
            except PositionError:
                # A scan of the folder is no snapshot: before a tuple counts as missing, look again.
                if looks == _LOOKS:
                    raise
                looks += 1
                self._refresh(listing)
                continue
            for name in listing.between(at, end):
                try:
                    segment = self._segment(partition, folder, name, schema)
                except FileNotFoundError:
                    # Retired (or merged) since the listing: look again, a few times for the same place.
                    if looks == _LOOKS:
                        raise self._missing(partition, at, name.end) from None
                    looks += 1
                    self._refresh(listing)
                    break
                for batch in segment.slices(at, end):
                    yield batch
                    at += batch.num_rows
                looks = 0

    def _segment(self, partition: int, folder: Path, name: SegmentName, schema: pa.Schema) -> Segment:
        if self._open is None or self._open[0] != (partition, name):
            self._open = (partition, name), open_segment(folder / str(name), name, schema)
        return self._open[1]

    def _check(self, partition: int, start: int, end: int) -> None:
        listing = self._listings[partition]
        if end > listing.end:
            raise self._beyond(partition, end, listing.end)
        span = listing.span(start, end)
        if span.first > start:
            raise self._missing(partition, start, span.first)
        if span.end < end:
            raise self._missing(partition, span.end, listing.span(span.end).first)

    def _refreshed(self) -> Iterator[tuple[int, Listing]]:
        for partition, listing in self._listings.items():
            self._refresh(listing)
            yield partition, listing

    def _refresh(self, listing: Listing) -> None:
        try:
            listing.refresh()
        except FileNotFoundError:
            raise MissingLogError(
                f"log {self.meta.path} has lost its folder {listing.folder.name}",
                hint="Restore it, or use another log",
            ) from None

    def _beyond(self, partition: int, position: int, end: int) -> PositionError:
        return PositionError(
            f"log {self.meta.path} partition {partition} ends at {end}, before position {position}",
            hint="The log was replaced or cut: restore it, or start the query with a new checkpoint",
            first=end,
            lost=0,
        )

    def _missing(self, partition: int, start: int, first: int) -> PositionError:
        earliest = self._listings[partition].earliest
        why = "is retired" if start < earliest else "is missing between segments"
        return PositionError(
            f"log {self.meta.path} partition {partition}: position {start} {why}, "
            f"{first - start} tuple(s) lost; the earliest position is {earliest}, "
            f"the next readable one {first}",
            hint="Keep segments longer, restore them, or accept the loss: `floodway run --on-loss skip` (onLoss=skip)",
            first=first,
            lost=first - start,
        )
