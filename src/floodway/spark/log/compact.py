"""Merging small segments, so that a log fed every 50 ms stays quick to list.

A merged segment holds the tuples, arrival times and tags of a row of neighbours. It appears first; the neighbours are
removed only by the next compaction, long after: a folder scan is no snapshot, and a reader that meets both prefers
the longer one, so at no moment a tuple is missing. Numbers do not change, and positions stay valid.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from floodway.spark.log.listing import Listing
from floodway.spark.log.segments import CHUNK, SegmentName, open_segment, sync_path, write_segment

LEAVE_NEWEST = 16
MIN_RUN = 8


def compact(listing: Listing, schema: pa.Schema, *, sync: bool) -> int:
    """Remove what the last compaction merged, then merge anew; the number of segments merged.

    To be called by the partition's writer only. The newest segments are left alone: readers are about to open them.
    """
    listing.refresh()
    for name in listing.merged:
        (listing.folder / str(name)).unlink(missing_ok=True)
    done = 0
    for run in runs(listing.chain[:-LEAVE_NEWEST]):
        _merge(listing.folder, run, schema, sync=sync)
        done += len(run)
    if sync and (done or listing.merged):
        sync_path(listing.folder)
    return done


def runs(segments: Sequence[SegmentName]) -> Iterator[list[SegmentName]]:
    """Neighbours without a hole that together fill at most one record batch.

    >>> names = [SegmentName(base, 10) for base in range(0, 100, 10)]
    >>> [len(run) for run in runs(names)]
    [10]
    """
    run: list[SegmentName] = []
    for segment in segments:
        if run and (segment.base != run[-1].end or segment.end - run[0].base > CHUNK):
            if len(run) >= MIN_RUN:
                yield run
            run = []
        run.append(segment)
    if len(run) >= MIN_RUN:
        yield run


def _merge(folder: Path, run: list[SegmentName], schema: pa.Schema, *, sync: bool) -> None:
    opened = [open_segment(folder / str(name), name, schema) for name in run]
    batches = [batch for segment in opened for batch in segment.slices(run[0].base, run[-1].end)]
    tags = [tag for segment in opened for tag in segment.tags]
    table = pa.Table.from_batches(batches).replace_schema_metadata(None)
    # The age of a segment, for retention, is that of its newest part.
    newest = (folder / str(run[-1])).stat()
    name = write_segment(folder, table, run[0].base, tags=tags, sync=sync)
    os.utime(folder / str(name), ns=(newest.st_atime_ns, newest.st_mtime_ns))
