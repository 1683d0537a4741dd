"""Lines of which the newest are kept: figures of batches, plans, samples; what a job may run for years and not regret.

They lie in a log of lines (`line_log.py`) whose oldest segments go when there are more than `kept_segments`, so neither
a disk nor a start grows with the age of the job. Accounts are not kept so: those are in the ledger.

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
from typing import Any

from floodway.job.store.line_log import open_log
from floodway.job.store.store import Store
from floodway.json_text import load_json

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
