"""An append-only log of lines on a store: in files that grow where the store is a disk, in immutable objects elsewhere.

A position says how far a log was read or written: bytes on a disk (`line_files.py`), appends elsewhere
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
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from floodway.job.store.line_files import FileLog
from floodway.job.store.line_objects import ObjectLog
from floodway.job.store.store import LocalStore, Store
from floodway.json_text import load_json


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


KEPT_SEGMENTS = 16
"""Some 64 MiB: two days of batches, one a second."""


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
