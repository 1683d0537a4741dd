"""Merging small segments, so that a log stays quick to list and to append to, whatever its age.

A merged segment holds the tuples, arrival times and tags of a row of neighbours. It appears first; the neighbours are
removed only by the next compaction, later: a folder scan is no snapshot, and a reader that meets both prefers the
longer one, so at no moment a tuple is missing. Numbers do not change, and positions stay valid.

Segments grow in two tiers, so that each tuple is written a few times and not once a compaction: small ones become one
of about a record batch, and those, once there are several, one of sixteen. Nothing larger is touched again: a merge
stays below 32 MiB, some ten milliseconds of the append that does it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from floodway.spark.log.listing import Listing
from floodway.spark.log.segments import CHUNK, SegmentName, open_segment, sync_path, write_segment
from floodway.spark.log.tag_index import note_tags

LEAVE_NEWEST = 16
MIN_RUN = 8
MEBIBYTE = 1 << 20

Sized = tuple[SegmentName, int]
"""A segment and its bytes."""


@dataclass(frozen=True, slots=True)
class Tier:
    """How large a merged segment may become: tuples, bytes, tags. What fills half of any of them is left as it is."""

    tuples: int
    bytes: int
    tags: int

    def takes(self, segment: Sized) -> bool:
        """Whether a segment is small enough to be merged."""
        name, size = segment
        return 2 * name.count <= self.tuples and 2 * size <= self.bytes and 2 * name.tags <= self.tags


SMALL = Tier(CHUNK, 4 * MEBIBYTE, 1024)
LARGE = Tier(16 * CHUNK, 32 * MEBIBYTE, 8192)


def compact(listing: Listing, schema: pa.Schema, *, sync: bool, most_bytes: int | None = None) -> int:
    """Remove what the last compaction merged, then merge anew; the number of segments merged.

    To be called by the partition's writer only. The newest segments are left alone: readers are about to open them.
    `most_bytes` limits a merged segment further.
    """
    listing.refresh()
    for name in listing.merged:
        (listing.folder / str(name)).unlink(missing_ok=True)
    if sync and listing.merged:
        sync_path(listing.folder)
    done = 0
    for tier, below in _tiers(most_bytes):
        listing.refresh()
        for run in runs(_sized(listing, listing.chain[:-LEAVE_NEWEST]), tier, below):
            _merge(listing.folder, run, schema, sync=sync)
            done += len(run)
    return done


def is_due(listing: Listing, every: int, most_bytes: int | None = None) -> bool:
    """Whether the newest part of a partition has `every` small segments to merge, or several middling ones.

    Looks at a bounded number of names; the compaction itself then takes all there are.
    """
    tail = listing.chain[-(4 * every + LEAVE_NEWEST) : -LEAVE_NEWEST]
    named = [(name, 0) for name in tail]
    # Without their sizes first: that costs no look at the files, and mostly says no.
    if not any(_due(named, every, most_bytes)):
        return False
    return any(_due(_sized(listing, tail), every, most_bytes))


def runs(
    segments: Sequence[Sized], tier: Tier = SMALL, below: Tier | None = None, least: int = MIN_RUN
) -> Iterator[list[SegmentName]]:
    """Neighbours without a hole that together fit into the tier; `least` of them too large for the tier below.

    >>> names = [(SegmentName(base, 10), 500) for base in range(0, 100, 10)]
    >>> [len(run) for run in runs(names)]
    [10]
    """
    run: list[Sized] = []
    tuples = size = tags = 0
    for segment in segments:
        name = segment[0]
        tuples, size, tags = tuples + name.count, size + segment[1], tags + name.tags
        full = tuples > tier.tuples or size > tier.bytes or tags > tier.tags
        if run and (full or name.base != run[-1][0].end or not tier.takes(segment)):
            yield from _long_enough(run, below, least)
            run = []
        if not run:
            tuples, size, tags = name.count, segment[1], name.tags
        if tier.takes(segment):
            run.append(segment)
    yield from _long_enough(run, below, least)


def _long_enough(run: Sequence[Sized], below: Tier | None, least: int) -> Iterator[list[SegmentName]]:
    if sum(below is None or not below.takes(one) for one in run) >= least:
        yield [name for name, _ in run]


def _tiers(most_bytes: int | None) -> list[tuple[Tier, Tier | None]]:
    small, large = (
        tier if most_bytes is None else replace(tier, bytes=min(tier.bytes, most_bytes)) for tier in (SMALL, LARGE)
    )
    return [(small, None), (large, small)]


def _due(segments: Sequence[Sized], every: int, most_bytes: int | None) -> Iterator[bool]:
    for tier, below in _tiers(most_bytes):
        yield any(True for _ in runs(segments, tier, below, every if below is None else MIN_RUN))


def _sized(listing: Listing, names: Sequence[SegmentName]) -> list[Sized]:
    """The segments with their bytes, without torn ones among those that may be merged."""
    sized = [(name, (listing.folder / str(name)).stat().st_size) for name in names]
    return [segment for segment in sized if not LARGE.takes(segment) or listing.is_whole(segment[0])]


def _merge(folder: Path, run: list[SegmentName], schema: pa.Schema, *, sync: bool) -> None:
    opened = [open_segment(folder / str(name), name, schema) for name in run]
    batches = [batch for segment in opened for batch in segment.slices(run[0].base, run[-1].end)]
    tags: dict[str, int] = {}
    for segment in opened:
        tags.update(segment.tagged)
    table = pa.Table.from_batches(batches).replace_schema_metadata(None)
    # The age of a segment, for retention, is that of its newest part.
    newest = (folder / str(run[-1])).stat()
    note_tags(folder, run, sync=sync)
    name = write_segment(folder, table, run[0].base, tags=tags, sync=sync)
    os.utime(folder / str(name), ns=(newest.st_atime_ns, newest.st_mtime_ns))
