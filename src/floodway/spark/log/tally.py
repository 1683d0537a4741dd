"""What lies in a log under which tag, through all compactions, and what retention took: for those who reconcile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodway.spark.log.listing import Listing
from floodway.spark.log.meta import open_log
from floodway.spark.log.segments import open_segment


@dataclass(frozen=True, slots=True)
class Tally:
    """Tuples by tag, those without one, and by partition those that are retired: the first number there is tells.

    An append is retired whole or not at all: a tag that is there has all its tuples.
    """

    tagged: Mapping[str, int]
    untagged: int
    retired: Mapping[int, int]


def tally(path: Path | str) -> Tally:
    """Count a log's tuples from the metadata of its segments; no column is read.

    >>> import tempfile, pyarrow as pa
    >>> from floodway.spark.log import LogWriter, create_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = create_log(folder, "id bigint")
    ...     with LogWriter(folder) as writer:
    ...         _ = writer.append(pa.record_batch({"id": [7, 8, 9]}), tag="q:0:0")
    ...         _ = writer.append(pa.record_batch({"id": [1]}))
    ...     print(tally(folder))
    Tally(tagged={'q:0:0': 3}, untagged=1, retired={0: 0})
    """
    meta = open_log(path)
    tagged: Counter[str] = Counter()
    held, retired = 0, {}
    for partition in range(meta.partitions):
        listing = Listing(meta.partition_path(partition))
        listing.refresh()
        retired[partition] = listing.earliest
        for name in listing.chain:
            held += name.count
            if name.tags:
                tagged.update(open_segment(listing.folder / str(name), name, meta.stored_schema).tagged)
    return Tally(dict(tagged), held - tagged.total(), retired)
