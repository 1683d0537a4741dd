"""A log of lines in files that grow: one `write` and one `fsync` per append, under an exclusive `flock`.

    NAME/00000000000000000000.jsonl      a segment, named by the byte of the log that it begins with
    NAME/00000000000004194510.jsonl

A segment of `SEGMENT_BYTES` or more is closed: whoever finds it so goes on with the next one, whose name follows from
its length. A crash in the middle of an append leaves a last line without its newline; readers pass over it, the next
writer cuts it away.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from secrets import token_hex

from floodway.job.store.store import LocalStore, StoreError, file_mode, sync_folder

SEGMENT_BYTES = 4 << 20
PART_BYTES = 1 << 20


class FileLog:
    """The log of one name in a folder. Safe for several processes; of one object one thread at a time."""

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
