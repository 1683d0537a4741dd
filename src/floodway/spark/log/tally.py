"""What lies in a log under which tag, through all compactions, and what retention took: for those who reconcile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from floodway.spark.log.listing import Listing
from floodway.spark.log.meta import open_log
from floodway.spark.log.segments import SegmentName, open_segment


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
