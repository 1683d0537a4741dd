"""One segment: an Arrow IPC file whose name says which tuples it holds.

`00000000000000001000-500.arrow` holds tuples 1000 to 1499; a tagged append adds 16 hex digits of the tag's hash. A
segment is written under a temporary name, synced and renamed, so that a name that exists is a whole segment. Its
metadata repeats base, count and tag: a file under a wrong name is refused. All record batches but the last hold
`CHUNK` tuples, so the batch of a tuple is found by division and the others are never touched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from floodway.spark.log.errors import LogError, SegmentError

CHUNK = 65_536
TEMPORARY = ".tmp-"
MANY_TAGS = "f" * 16
"""Stands in a name for the tags of a merged segment, which only its metadata tells."""
_NAME = re.compile(r"(\d{20})-(\d{1,12})(?:-([0-9a-f]{16}))?\.arrow")
_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What a file name says: the first tuple's number, the count, and the hash of the append's tag ("" without)."""

    base: int
    count: int
    tag_hash: str = ""

    @property
    def end(self) -> int:
        """The number after the last tuple."""
        return self.base + self.count

    def __str__(self) -> str:
        return f"{self.base:020d}-{self.count}{'-' if self.tag_hash else ''}{self.tag_hash}.arrow"


def parse_name(name: str) -> SegmentName | None:
    """The segment a file name stands for, or None for any other file.

    >>> parse_name("00000000000000001000-500.arrow")
    SegmentName(base=1000, count=500, tag_hash='')
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match.group(2)) == 0:
        return None
    return SegmentName(int(match.group(1)), int(match.group(2)), match.group(3) or "")


def hash_tag(tag: str) -> str:
    """16 hex digits that stand for an append's tag in the file name."""
    return hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()


def is_whole(path: Path | str) -> bool:
    """Whether the file starts and ends as an Arrow file: quick, and enough to see truncation and garbage."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
            file.seek(-len(_MAGIC), os.SEEK_END)
            return file.tell() > 2 * len(_MAGIC) and file.read() == _MAGIC
    except OSError:
        return False


def write_segment(folder: Path, table: pa.Table, base: int, *, tags: Sequence[str] = (), sync: bool) -> SegmentName:
    """Write `table` (payload and `_arrival`) as the segment at `base`; on any failure nothing is left behind."""
    name = SegmentName(base, table.num_rows, "" if not tags else hash_tag(tags[0]) if len(tags) == 1 else MANY_TAGS)
    marks = {
        "floodway.base": str(base),
        "floodway.count": str(table.num_rows),
        "floodway.tags": json.dumps(list(tags)),
    }
    schema = table.schema.with_metadata(marks)
    temporary = folder / f"{TEMPORARY}{os.getpid()}-{base}"
    try:
        with pa.OSFile(str(temporary), "wb") as sink:
            with pa.ipc.new_file(sink, schema) as writer:
                for batch in table.replace_schema_metadata(marks).combine_chunks().to_batches(CHUNK):
                    writer.write_batch(batch)
            sink.flush()
        if sync:
            sync_path(temporary)
        temporary.rename(folder / str(name))
    except OSError as error:
        temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise LogError(
            f"cannot append to {folder}: {'the disk is full' if full else error}",
            hint="Nothing of this append was written; free space (or set a retention) and append again",
        ) from error
    if sync:
        sync_path(folder)
    return name


def sync_path(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass
class Segment:
    """An open, memory-mapped segment that has been checked against its name and the log's schema."""

    path: Path
    name: SegmentName
    tags: tuple[str, ...]
    file: pa.ipc.RecordBatchFileReader
    _last: tuple[int, pa.RecordBatch] | None = None

    def slices(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The tuples from `start` up to `end`, as zero-copy slices of only the record batches that hold them."""
        first, last = max(start, self.name.base), min(end, self.name.end)
        at = first
        while at < last:
            index, offset = divmod(at - self.name.base, CHUNK)
            batch = self._batch(index)
            length = min(batch.num_rows - offset, last - at)
            yield batch.slice(offset, length)
            at += length

    def _batch(self, index: int) -> pa.RecordBatch:
        # Many short ranges may be cut from one batch, and parsing its header costs more than a cut.
        if self._last is not None and self._last[0] == index:
            return self._last[1]
        try:
            batch = self.file.get_batch(index)
        except (pa.ArrowInvalid, OSError) as error:
            raise _refused(self.path, f"record batch {index} is torn ({error})") from None
        if batch.num_rows != min(CHUNK, self.name.count - index * CHUNK):
            raise _refused(self.path, f"record batch {index} has {batch.num_rows} tuples")
        self._last = (index, batch)
        return batch


def open_segment(path: Path, name: SegmentName, schema: pa.Schema) -> Segment:
    """Map a segment and check it; raises SegmentError if it is not what its name says, FileNotFoundError if gone."""
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise _refused(path, f"it is torn or no Arrow file ({error})") from None
    marks = file.schema.metadata or {}
    base, count = marks.get(b"floodway.base"), marks.get(b"floodway.count")
    if base != str(name.base).encode() or count != str(name.count).encode():
        raise _refused(path, "its name does not say what is in it")
    if file.num_record_batches != -(-name.count // CHUNK):
        raise _refused(path, f"it has {file.num_record_batches} record batches for {name.count} tuples")
    if not file.schema.equals(schema):
        raise _refused(path, "its columns are not the log's")
    return Segment(path, name, tuple(json.loads(marks.get(b"floodway.tags", b"[]"))), file)


def _refused(path: Path, why: str) -> SegmentError:
    return SegmentError(
        f"segment {path} is refused: {why}",
        hint="Restore it from a copy, or move it away and accept the loss",
    )
