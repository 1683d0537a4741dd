"""One segment: an Arrow IPC file whose name says which tuples it holds.

`00000000000000001000-500.arrow` holds tuples 1000 to 1499; a tagged append adds 16 hex digits of the tag's hash, a
merge of several `ffffffff` and how many tags it holds. A segment is written under a temporary name, synced and renamed,
so that a name that exists is a whole segment. Its metadata repeats base and count and lists the tags: a file under a
wrong name is refused. All record batches but the last hold `CHUNK` tuples, so the batch of a tuple is found by division
and the others are never touched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
from pydantic import TypeAdapter, ValidationError

from floodway.spark.log.errors import LogError, SegmentError

CHUNK = 65_536
TEMPORARY = ".tmp-"
_MANY = "f" * 8
"""Begins what stands in a name for several tags, which only the metadata tells; no tag's hash begins so."""
_NAME = re.compile(r"(\d{20})-(\d{1,12})(?:-([0-9a-f]{16}))?\.arrow")
_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What a file name says: the first tuple's number, the count, and the hash of the append's tag ("" without).

    >>> SegmentName(0, 5).tags, SegmentName(0, 5, hash_tag("q:7:0")).tags, SegmentName(0, 5, "ffffffff00000040").tags
    (0, 1, 64)
    """

    base: int
    count: int
    tag_hash: str = ""

    @property
    def end(self) -> int:
        """The number after the last tuple."""
        return self.base + self.count

    @property
    def tags(self) -> int:
        """How many tags the segment holds."""
        if self.tag_hash.startswith(_MANY):
            return int(self.tag_hash[len(_MANY) :], 16)
        return 1 if self.tag_hash else 0

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
    digest = hashlib.blake2b(tag.encode(), digest_size=8).hexdigest()
    return f"0{digest[1:]}" if digest.startswith(_MANY) else digest


def is_whole(path: Path | str) -> bool:
    """Whether the file starts and ends as an Arrow file: quick, and enough to see truncation and garbage.

    Raises FileNotFoundError when it is gone, and LogError when it cannot be looked at: that says nothing about it.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size <= 2 * len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
                return False
            file.seek(-len(_MAGIC), os.SEEK_END)
            return file.read() == _MAGIC
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None


def write_segment(folder: Path, table: pa.Table, base: int, *, tags: Mapping[str, int], sync: bool) -> SegmentName:
    """Write `table` (payload and `_arrival`) as the segment at `base`; on any failure nothing is left behind.

    `tags` says how many of the tuples each tag stands for.
    """
    name = SegmentName(base, table.num_rows, _tag_digits(tags))
    marks = {
        "floodway.base": str(base),
        "floodway.count": str(table.num_rows),
        "floodway.tags": json.dumps(list(tags)),
        "floodway.tagged": json.dumps(list(tags.values())),
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
        raise cannot_append(folder, error) from error
    if sync:
        sync_path(folder)
    return name


def _tag_digits(tags: Mapping[str, int]) -> str:
    if len(tags) > 1:
        return f"{_MANY}{len(tags):08x}"
    return "".join(map(hash_tag, tags))


def cannot_append(folder: Path, error: OSError) -> LogError:
    """The error of an append that the file system refused."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return LogError(
        f"cannot append to {folder}: {'the disk is full' if full else error}",
        hint="Nothing of this append was written; free space (or set a retention) and append again",
    )


def sync_path(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_TAGS = TypeAdapter(list[str])
_COUNTS = TypeAdapter(list[int])


@dataclass
class Segment:
    """An open, memory-mapped segment that has been checked against its name and the log's schema."""

    path: Path
    name: SegmentName
    file: pa.ipc.RecordBatchFileReader
    _last: tuple[int, pa.RecordBatch] | None = None

    @cached_property
    def tagged(self) -> dict[str, int]:
        """The tags of the appends that are in here, each with its tuples; read when asked for: there may be many.

        Segments merged before tuples were counted by tag have all of them under the first.
        """
        marks = self.file.schema.metadata
        try:
            tags = _TAGS.validate_json(marks.get(b"floodway.tags", b"[]"))
            counts = _COUNTS.validate_json(marks.get(b"floodway.tagged", b"[]")) or [self.name.count] * bool(tags)
        except ValidationError:
            raise _refused(self.path, "its list of tags is damaged") from None
        return dict.fromkeys(tags, 0) | dict(zip(tags, counts, strict=False))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, in order of the appends."""
        return tuple(self.tagged)

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
            # Offsets of text that damage has set anywhere would be followed there, and end the process.
            batch.validate(full=True)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise _refused(self.path, f"record batch {index} is torn ({error})") from None
        if batch.num_rows != min(CHUNK, self.name.count - index * CHUNK):
            raise _refused(self.path, f"record batch {index} has {batch.num_rows} tuples")
        self._last = (index, batch)
        return batch


def open_segment(path: Path, name: SegmentName, schema: pa.Schema) -> Segment:
    """Map a segment and check it; raises SegmentError if it is not what its name says, FileNotFoundError if gone."""
    try:
        # Not `pa.memory_map`: the kernel is asked there for all pages at once, which costs more than a drop does.
        with path.open("rb") as opened:
            file = pa.ipc.open_file(pa.py_buffer(mmap(opened.fileno(), 0, access=ACCESS_READ)))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, ValueError, OSError) as error:  # ValueError: an empty file cannot be mapped
        if isinstance(error, OSError) and error.errno is not None:
            raise _unreadable(path, error) from None
        raise _refused(path, f"it is torn or no Arrow file ({error})") from None
    marks = file.schema.metadata or {}
    base, count = marks.get(b"floodway.base"), marks.get(b"floodway.count")
    if base != str(name.base).encode() or count != str(name.count).encode():
        raise _refused(path, "its name does not say what is in it")
    if file.num_record_batches != -(-name.count // CHUNK):
        raise _refused(path, f"it has {file.num_record_batches} record batches for {name.count} tuples")
    if not file.schema.equals(schema):
        raise _refused(path, "its columns are not the log's")
    return Segment(path, name, file)


def _unreadable(path: Path | str, error: OSError) -> LogError:
    return LogError(
        f"segment {path} cannot be read: {error.strerror or error}",
        hint="Check its permissions, the disk and the limit of open files; it is not taken for lost",
    )


def _refused(path: Path, why: str) -> SegmentError:
    return SegmentError(
        f"segment {path} is refused: {why}",
        hint="Restore it from a copy, or move it away and accept the loss",
    )
