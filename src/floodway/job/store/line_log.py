"""An append-only log of lines on a store: in files that grow where the store is a disk, in immutable objects elsewhere.

A position says how far a log was read or written: bytes on a disk (`line_files.py`), appends elsewhere
(`line_objects.py`). Positions only grow. Whoever appends says where it believes the log to end; if another writer was
there first, nothing is written, and the writer reads on. So several writers in turn lose and double nothing.

A log consists of segments, the last of which is open. Closed ones never change, and the oldest may be removed. The
object `NAME/id` holds a name that no other log has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from floodway.job.store.line_files import FileLog
from floodway.job.store.line_objects import ObjectLog
from floodway.job.store.store import LocalStore, Store


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
    return FileLog(store, name) if isinstance(store, LocalStore) else ObjectLog(store, name)
