"""An append-only log of lines on a store: in files that grow where the store is a disk, in immutable objects elsewhere.

A position says how far a log was read or written: bytes on a disk (`FileLog`), appends elsewhere
(`line_objects.py`). Positions only grow. Whoever appends says where it believes the log to end; if another writer was
there first, nothing is written, and the writer reads on. So several writers in turn lose and double nothing.

A log consists of segments, the last of which is open. Closed ones never change, and the oldest may be removed. The
object `NAME/id` holds a name that no other log has.

`KeptLines` are JSON lines in such a log whose oldest segments go when there are more than `kept_segments`, so neither
a disk nor a start grows with the age of the job. Figures of batches, plans and samples are
kept so; accounts are in the ledger.

>>> import tempfile
>>> from floodway.job.store.store import LocalStore
>>> lines = KeptLines(LocalStore(tempfile.mkdtemp()), "figures")
>>> lines.append([{"batch": 0}, {"batch": 1}])
>>> list(lines.read())
[{'batch': 0}, {'batch': 1}]

`Unwritten` holds what a store has refused, until it writes again: a disk that was full for a while loses no account.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any, Generic, Protocol, TypeVar

from floodway.job.store.store import LocalStore, Store, StoreError, file_mode, sync_folder
from floodway.json_text import load_json

SEGMENT_BYTES = 4 << 20
PART_BYTES = 1 << 20
KEPT_SEGMENTS = 16
"""Some 64 MiB: two days of batches, one a second."""


class FileLog:
    """The log of one name in a folder: one `write` and one `fsync` per append, under an exclusive `flock`.

        NAME/00000000000000000000.jsonl      a segment, named by the byte of the log that it begins with
        NAME/00000000000004194510.jsonl

    A segment of `SEGMENT_BYTES` or more is closed: whoever finds it so goes on with the next one, whose name follows
    from its length. A crash in the middle of an append leaves a last line without its newline; readers pass over it,
    the next writer cuts it away. Safe for several processes; of one object one thread at a time.
    """

    def __init__(self, store: LocalStore, name: str) -> None:
        self.folder = store.path(name)
        self.torn = 0
        self._store = store
        self._id = f"{name}/id"
        self._open: int | None = None
        """Where the segment begins that was open when last seen."""

    @property
    def closed(self) -> int:
        return self._open or 0

    def identity(self) -> str | None:
        found = self._store.read(self._id)
        return None if found is None else found.decode(errors="replace")

    def append(self, lines: bytes, at: int) -> int | None:
        if self._open is None or at < self._open:
            self._open = max((begin for begin in self.segments() if begin <= at), default=at)
        while True:
            begin = self._open
            with self._locked(self._path(begin), new=begin == at) as descriptor:
                if descriptor is None:
                    if begin > at:
                        return None
                    self._open = at  # the folder was removed under our hands: go on where we are
                    continue
                size = os.fstat(descriptor).st_size
                if size < SEGMENT_BYTES and begin + size == at:
                    self._write(descriptor, size, lines)
                    return at + len(lines)
                end = self._whole(descriptor, size)
                if end >= SEGMENT_BYTES:
                    self._open += end
                elif begin + end == at:
                    os.ftruncate(descriptor, end)
                    self.torn += 1
                else:
                    return None

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        segments = self.segments()
        for begin, after in zip(segments, [*segments[1:], None], strict=False):
            if after is None or start < after:
                yield from self._read(begin, max(start - begin, 0))

    def segments(self) -> list[int]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._worded(self.folder, "listed", error) from error
        return sorted(int(name[:20]) for name in names if name[:20].isdecimal() and name[20:] == ".jsonl")

    def remove_before(self, position: int) -> None:
        segments = self.segments()
        for begin, after in pairwise(segments):
            if after <= position:
                self._path(begin).unlink(missing_ok=True)

    def torn_bytes(self) -> int:
        segments = self.segments()
        if not segments:
            return 0
        with self._path(segments[-1]).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size - self._whole(file.fileno(), size)

    def _read(self, begin: int, offset: int) -> Iterator[tuple[int, bytes]]:
        path = self._path(begin)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                rest = b""
                while part := file.read(PART_BYTES):
                    raw = rest + part
                    whole = raw.rfind(b"\n") + 1
                    offset, rest = offset + whole, raw[whole:]
                    if whole:
                        yield begin + offset, raw[:whole]
        except FileNotFoundError:  # removed since it was listed
            return
        except OSError as error:
            raise self._worded(path, "read", error) from error

    def _path(self, begin: int) -> Path:
        return self.folder / f"{begin:020d}.jsonl"

    @contextmanager
    def _locked(self, path: Path, *, new: bool) -> Iterator[int | None]:
        """The file, made if it may be `new`, while no other process appends to it; None if it is not there."""
        try:
            descriptor = self._opened(path, new=new)
        except OSError as error:
            raise self._worded(path, "written", error) from error
        try:
            if descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _opened(self, path: Path, *, new: bool) -> int | None:
        try:
            return os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            if not new:
                return None
        self._store.create(self._id, token_hex(8).encode())
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, file_mode(path.parent))
        sync_folder(path.parent)
        return descriptor

    def _write(self, descriptor: int, size: int, lines: bytes) -> None:
        try:
            if os.write(descriptor, lines) != len(lines):
                raise OSError("short write")
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise self._worded(self.folder, "appended to, nothing was recorded", error) from error

    @staticmethod
    def _whole(descriptor: int, size: int) -> int:
        """Where the last whole line of a file ends."""
        end = size
        while end > 0:
            start = max(0, end - PART_BYTES)
            if (newline := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0:
                return start + newline + 1
            end = start
        return 0

    @staticmethod
    def _worded(path: Path, done: str, error: OSError) -> StoreError:
        return StoreError(
            f"{path} cannot be {done}",
            why=error.strerror or str(error),
            hint="Is the disk full, or the folder read-only?",
        )


class LineLog(Protocol):
    """See the module. Every method raises StoreError when the store cannot do it."""

    torn: int
    """Torn last lines that this writer has cut away."""

    @property
    def closed(self) -> int:
        """Where the last closed segment ends, as far as this writer knows."""

    def identity(self) -> str | None:
        """What tells this log from one that was removed and begun anew; None before the first append."""

    def append(self, lines: bytes, at: int) -> int | None:
        """Add whole lines, durably, if the log ends at `at`; the new end, or None if it ends elsewhere."""

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Whole lines from a position on, in parts, each with the position after it."""

    def segments(self) -> list[int]:
        """Where each segment begins, oldest first; the last one is open."""

    def remove_before(self, position: int) -> None:
        """Remove the segments that end at or before a position."""

    def torn_bytes(self) -> int:
        """Bytes after the last whole line."""


def open_log(store: Store, name: str) -> LineLog:
    """The log of this name on a store; it need not be there yet."""
    if isinstance(store, LocalStore):
        return FileLog(store, name)
    from floodway.job.store.line_objects import ObjectLog

    return ObjectLog(store, name)


class KeptLines:
    """JSON objects, one a line. Of one object one thread at a time; several processes may append in turn."""

    def __init__(self, store: Store, name: str, *, kept_segments: int = KEPT_SEGMENTS) -> None:
        self._log = open_log(store, name)
        self._kept_segments = kept_segments
        self._end: int | None = None
        self._closed = 0

    def append(self, bodies: Iterable[Mapping[str, Any]]) -> None:
        """Add lines; the oldest segments go when there are too many."""
        lines = b"".join(json.dumps(body, separators=(",", ":")).encode() + b"\n" for body in bodies)
        while True:
            at = self._find_end() if self._end is None else self._end
            self._end = self._log.append(lines, at)
            if self._end is not None:
                break
        if self._log.closed != self._closed:
            self._closed = self._log.closed
            segments = self._log.segments()
            if len(segments) > self._kept_segments:
                self._log.remove_before(segments[-self._kept_segments])

    def read(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """The objects that are kept, oldest first; what is no object is passed over."""
        for _, part in self._log.read(start):
            yield from parsed(part)

    def latest(self) -> Iterator[dict[str, Any]]:
        """Those of the newest segments alone: what a start has time for."""
        return self.read(max(self._log.segments()[-2:-1], default=0))

    def _find_end(self) -> int:
        end = max(self._log.segments(), default=0)
        for position, _ in self._log.read(end):
            end = position
        return end


def parsed(part: bytes) -> Iterator[dict[str, Any]]:
    """The objects in whole lines.

    >>> list(parsed(b'{"a":1}\\n[]\\n{"b"\\n'))
    [{'a': 1}]
    """
    for raw in part.splitlines():
        try:
            body = load_json(raw)
        except ValueError:
            continue
        if isinstance(body, dict):
            yield body


Item = TypeVar("Item")

MOST = 10_000
"""Items kept in memory; of more the oldest go."""


class Unwritten(Generic[Item]):
    """Hands items on in order, each until `write` has taken it; `write` takes all that it is given, or raises.

    >>> taken = []
    >>> waiting = Unwritten(taken.extend)
    >>> waiting.write(["a"]); waiting.write(["b"]); taken
    ['a', 'b']
    """

    def __init__(self, write: Callable[[Sequence[Item]], object]) -> None:
        self._write = write
        self._items: list[Item] = []

    def write(self, items: Iterable[Item]) -> None:
        """These after those that wait. Raises what the store says; they are tried again with the next ones."""
        wanted = [*self._items, *items]
        try:
            self._write(wanted)
        except (StoreError, OSError):
            self._items = wanted[-MOST:]
            raise
        self._items = []
