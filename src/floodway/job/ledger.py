"""The ledger: per micro-batch, drop location and reason, what was offered, kept and dropped.

Append-only JSON lines; one line is one object with the fields of `LedgerLine` (`ledger_line.py`), keys sorted, e.g.

    {"at":"clicks","batch":7,"dropped":600,"keep_ppm":400000,"kept":400,"mode":"enforce","offered":1000,
     "plan":"8f3a01bc","query":"6f0c…","reason":"shedder","time_us":1735689600000000,"until":null}

(on one line in the file). Every append is one `write` on an O_APPEND descriptor followed by `fsync`, under an
exclusive `flock`: one writer at a time, also across processes. A key (query, batch, at, reason) is written once: a
replayed batch that says the same again is ignored, one that says otherwise is kept beside it as a `conflict`. A crash
in the middle of an append leaves a last line without a newline; readers pass over it, the next writer cuts it away,
both count it.

A job may run for months: a writer looks at the end of the file only and remembers the newest batches
(`ledger_memory.py`); sums are taken line by line (`fold.py`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.fold import Fold
from floodway.job.ledger_line import LedgerLine, Reason
from floodway.job.ledger_memory import Counts, Key, RecentLines

__all__ = ["Ledger", "LedgerError", "LedgerLine", "Reason"]

TAIL_BYTES = 4 << 20
"""How much of its end a writer reads of a file it has not seen: some 20,000 lines."""
PART_BYTES = 1 << 20


class LedgerError(FloodwayError):
    """A ledger file that holds something other than ledger lines."""

    exit_code = 3


class Ledger:
    """A ledger file. Reading needs no lock; see the module for what an append promises.

    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl")
    >>> line = LedgerLine("q", 0, "clicks", "shedder", offered=10, kept=4, dropped=6)
    >>> ledger.append([line]), ledger.append([line])
    (1, 0)
    >>> ledger.fold().total.dropped.total(), ledger.fold().differences()
    (6, [])
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.torn = 0
        """Torn last lines cut away by this writer."""
        self._recent = RecentLines()
        self._known_bytes = 0

    def append(self, lines: Iterable[LedgerLine]) -> int:
        """Write the lines not yet there and return how many were written; durable when it returns."""
        wanted = list(lines)
        for line in wanted:
            if not line.balanced:
                raise LedgerError(
                    f"ledger line {line.key} does not balance: offered {line.offered}, "
                    f"kept {line.kept}, dropped {line.dropped}",
                    hint="offered must equal kept + dropped, none of them negative",
                )
        with self._locked() as descriptor:
            self._catch_up(descriptor)
            fresh = list(self._fresh(wanted))
            if fresh:
                payload = b"".join(line.encode() for line in fresh)
                self._write(descriptor, payload)
                for line in fresh:
                    self._recent.add(line.key, line.counts)
                self._known_bytes += len(payload)
        return len(fresh)

    def read(self) -> list[LedgerLine]:
        """All whole lines, in the order written; a torn last line is passed over."""
        return list(self.lines())

    def lines(self, start: int = 0) -> Iterator[LedgerLine]:
        """As `read`, one by one: memory does not grow with the file. From the first line at or after byte `start`."""
        try:
            with self.path.open("rb") as file:
                position, rest = start, b""
                if start:
                    file.seek(start - 1)
                    position += len(file.readline()) - 1
                while part := file.read(PART_BYTES):
                    raw = rest + part
                    whole = raw.rfind(b"\n") + 1
                    yield from self._decode(raw[:whole], position)
                    position, rest = position + whole, raw[whole:]
        except FileNotFoundError:
            return

    def last_batch(self, query: str, at: str) -> int | None:
        """The highest batch on record (gaps included) for a query and location; None if there is none."""
        start = self._tail()
        while True:
            tail = [(ln.last_batch, ln.reason) for ln in self.lines(start) if ln.query == query and ln.at == at]
            # Replays that counted otherwise stand behind later batches: a tail that holds some tells no order.
            if start == 0 or (tail and all(reason != Reason.CONFLICT for _, reason in tail)):
                return max((batch for batch, _ in tail), default=None)
            start = 0

    def fold(self) -> Fold:
        """The sums over all lines, and every way in which they do not add up, a torn last line among them."""
        found = Fold(self.lines())
        for text in self.torn_now():
            found.differ(text)
        return found

    def torn_now(self) -> list[str]:
        """A sentence about a torn last line, if there is one."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - PART_BYTES))
            raw = file.read()
        torn = len(raw) - (raw.rfind(b"\n") + 1)
        return [f"the last line is torn: {torn} bytes without a newline"] if torn else []

    def _tail(self) -> int:
        return max(0, self.path.stat().st_size - TAIL_BYTES) if self.path.exists() else 0

    def _fresh(self, wanted: Sequence[LedgerLine]) -> Iterator[LedgerLine]:
        seen = self._searched({line.key for line in wanted if not self._recent.knows(line.query, line.batch)})
        for line in wanted:
            before = seen.get(line.key) or self._recent.find(line.key)
            if before is None:
                seen[line.key] = line.counts
                yield line
            elif before != line.counts:
                # The first account stays; the second is evidence that a replay did not repeat the first run.
                conflict = replace(line, reason=Reason.CONFLICT.value)
                if conflict.key not in seen and self._recent.find(conflict.key) is None:
                    seen[conflict.key] = conflict.counts
                    yield conflict

    def _searched(self, keys: set[Key]) -> dict[Key, Counts]:
        """Lines of batches that are no longer remembered, from the file: those with these keys, and their conflicts."""
        found: dict[Key, Counts] = {}
        if keys:
            places = {key[:3] for key in keys}
            for line in self.lines():
                if line.key[:3] in places:
                    found.setdefault(line.key, line.counts)
        return found

    @contextmanager
    def _locked(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int) -> None:
        """Learn what others wrote since, and cut away a torn last line; of a file not seen before only its end."""
        size = os.fstat(descriptor).st_size
        if size < self._known_bytes:
            self._recent, self._known_bytes = RecentLines(), 0
        end = self._cut_torn(descriptor, size)
        if self._known_bytes == 0 and end > TAIL_BYTES:
            self._recent = RecentLines(whole=False)
            if self._learn(end - TAIL_BYTES):
                # Conflicts stand behind later batches, so this tail tells no order: nothing but the whole will do.
                self._recent = RecentLines()
                self._learn(0)
        elif end > self._known_bytes:
            self._learn(self._known_bytes)
        self._known_bytes = end

    def _learn(self, start: int) -> bool:
        """Remember the lines from a byte on; whether there was a conflict among them."""
        conflict = False
        for line in self.lines(start):
            conflict |= line.reason == Reason.CONFLICT
            self._recent.add(line.key, line.counts)
        return conflict

    def _cut_torn(self, descriptor: int, size: int) -> int:
        """Where the last whole line ends; what comes after it is removed."""
        end, rest = size, b""
        while end > self._known_bytes:
            start = max(self._known_bytes, end - PART_BYTES)
            rest = os.pread(descriptor, end - start, start)
            if (whole := rest.rfind(b"\n") + 1) > 0:
                end = start + whole
                break
            end = start
        if end < size:
            os.ftruncate(descriptor, end)
            self.torn += 1
        return end

    def _write(self, descriptor: int, payload: bytes) -> None:
        start = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, payload) != len(payload):
                raise OSError("short write")
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, start)
            raise LedgerError(
                f"cannot append to the ledger {self.path}: {error}",
                hint="is the disk full? nothing was recorded",
            ) from error

    def _decode(self, raw: bytes, position: int) -> Iterator[LedgerLine]:
        """The lines in a part of the file that begins at this byte."""
        for stored in raw.splitlines(keepends=True):
            try:
                yield LedgerLine.decode(stored)
            except ValueError as error:
                with self.path.open("rb") as file:
                    number = file.read(position).count(b"\n") + 1
                raise LedgerError(
                    f"{self.path}, line {number}: not a ledger line ({error})",
                    hint="the file was changed by something else; move it away to start a new ledger",
                ) from error
            position += len(stored)
