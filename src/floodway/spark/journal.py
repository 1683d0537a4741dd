"""What Spark journaled about a micro-batch: when it was cut, and the offset of every Floodway source in it.

Spark writes `CHECKPOINT/offsets/N` before batch N runs, so inside the batch its decision can be read back, and after
a crash an audit can tell what every batch offered and kept without asking anyone who was there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodway.errors import InputError
from floodway.spark.source.offsets import BatchOffset, parse_offset


@dataclass(frozen=True, slots=True)
class JournaledBatch:
    """Batch number, the time it was cut (milliseconds since 1970), and the offsets of the sources that had news."""

    batch: int
    timestamp_ms: int
    offsets: Mapping[str, BatchOffset]


def read_batch(checkpoint: Path, batch: int) -> JournaledBatch:
    """Batch N as journaled. A source whose offset is that of the batch before brought nothing and is left out."""
    journal = _read(checkpoint / "offsets" / str(batch), batch)
    before = checkpoint / "offsets" / str(batch - 1)
    old = _read(before, batch - 1).offsets if before.exists() else {}
    news = {name: offset for name, offset in journal.offsets.items() if old.get(name) != offset}
    return JournaledBatch(batch, journal.timestamp_ms, news)


def _read(path: Path, batch: int) -> JournaledBatch:
    """Read `offsets/N`: a version line, a line of metadata, a line for each source."""
    try:
        _, metadata, *sources = path.read_text(encoding="utf-8").splitlines()
        timestamp = int(json.loads(metadata)["batchTimestampMs"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} is not Spark's journal of batch {batch}: {error}", hint="Restore the checkpoint"
        ) from error
    parsed = [parse_offset(line) for line in sources if line.startswith("{")]
    return JournaledBatch(batch, timestamp, {offset.stream: offset for offset in parsed})


def last_offsets(checkpoint: Path) -> dict[str, BatchOffset]:
    """The offset of every source in the newest journaled batch, whether it is committed or will be repeated."""
    folder = checkpoint / "offsets"
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    return dict(_read(folder / str(max(numbers)), max(numbers)).offsets) if numbers else {}


def committed_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches that Spark has committed, in order."""
    folder = checkpoint / "commits"
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
