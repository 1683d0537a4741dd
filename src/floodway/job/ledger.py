"""The ledger: per micro-batch, drop location and reason, what was offered, kept and dropped.

Append-only JSON lines; one line is one object with the fields of `LedgerLine`, keys sorted, e.g.

    {"at":"clicks","batch":7,"dropped":600,"keep_ppm":400000,"kept":400,"mode":"enforce","offered":1000,
     "plan":"8f3a01bc","query":"6f0c…","reason":"shedder","time_us":1735689600000000,"until":null}

(on one line in the file). Every append is one `write` on an O_APPEND descriptor followed by `fsync`, under an
exclusive `flock`: one writer at a time, also across processes. A key (query, batch, at, reason) is written once: a
replayed batch that says the same again is ignored, one that says otherwise is kept beside it as a `conflict`. A crash
in the middle of an append leaves a last line without a newline; readers pass over it, the next writer cuts it away,
both count it.

A job may run for months: a writer looks at the end of the file only and remembers the newest batches
(`ledger_memory.py`); sums are taken line by line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from floodway.errors import FloodwayError
from floodway.job.ledger_memory import Counts, Key, RecentLines

TAIL_BYTES = 4 << 20
"""How much of its end a writer reads of a file it has not seen: some 20,000 lines."""
PART_BYTES = 1 << 20


class LedgerError(FloodwayError):
    """A ledger file that holds something other than ledger lines."""

    exit_code = 3


class Reason(StrEnum):
    """Why tuples left the stream, or why a line is there at all (`delivered` to a sink, `gap`, `conflict`)."""

    SHEDDER = "shedder"
    ADAPTOR = "adaptor"
    CLEANER = "cleaner"
    DEAD_LETTER = "dead-letter"
    RETENTION = "retention"
    DELIVERED = "delivered"
    GAP = "gap"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What one micro-batch did at one drop location for one reason.

    Counts in tuples, time in microseconds of the epoch, `offered = kept + dropped`. `plan` names the decision in
    force, `keep_ppm` its keep in parts per million. A `gap` line stands for the batches `batch` to `until` of which
    no count was ever heard; its own counts are 0.

    >>> LedgerLine("q", 7, "clicks", "shedder", 10, 4, 6).balanced
    True
    """

    query: str
    batch: int
    at: str
    reason: str
    offered: int
    kept: int
    dropped: int
    plan: str = ""
    mode: str = "enforce"
    keep_ppm: int = 1_000_000
    time_us: int = 0
    until: int | None = None

    @property
    def key(self) -> Key:
        """What makes a line unique."""
        return (self.query, self.batch, self.at, self.reason)

    @property
    def balanced(self) -> bool:
        """Whether every offered tuple is accounted for."""
        return self.offered == self.kept + self.dropped and min(self.offered, self.kept, self.dropped) >= 0

    def encode(self) -> bytes:
        """The line as stored, newline included."""
        return (json.dumps(asdict(self), sort_keys=True, separators=(",", ":")) + "\n").encode()

    @classmethod
    def decode(cls, raw: bytes) -> LedgerLine:
        """Read one stored line; a ValueError says what is wrong with it."""
        body = json.loads(raw)
        if not isinstance(body, dict):
            raise ValueError("not an object")
        known: dict[str, Any] = {}
        for name, kind in _FIELDS:
            value = known[name] = body.get(name)
            if kind == "int" and type(value) is not int:
                raise ValueError(f"{name} is {value!r}, not an integer")
            if kind == "str" and not isinstance(value, str):
                raise ValueError(f"{name} is {value!r}, not a string")
        return cls(**known)

    @property
    def counts(self) -> Counts:
        """Offered, kept, dropped."""
        return (self.offered, self.kept, self.dropped)


_FIELDS = tuple((field.name, field.type) for field in fields(LedgerLine))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a ledger, in tuples; `dropped_by` maps (at, reason) to tuples dropped."""

    offered: int
    kept: int
    dropped: int
    dropped_by: dict[tuple[str, str], int]


class Ledger:
    """A ledger file. Reading needs no lock; see the module for what an append promises.

    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl")
    >>> line = LedgerLine("q", 0, "clicks", "shedder", offered=10, kept=4, dropped=6)
    >>> ledger.append([line]), ledger.append([line])
    (1, 0)
    >>> ledger.totals().dropped
    6
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

    def totals(self, query: str | None = None) -> Totals:
        """Sums over all lines (of one query), conflicts and gaps left out.

        `offered` and `kept` of one tuple count at every location it passes.
        """
        offered = kept = 0
        dropped_by: dict[tuple[str, str], int] = {}
        for line in self.lines():
            if line.reason in (Reason.GAP, Reason.CONFLICT) or (query is not None and line.query != query):
                continue
            offered, kept = offered + line.offered, kept + line.kept
            place = (line.at, line.reason)
            dropped_by[place] = dropped_by.get(place, 0) + line.dropped
        return Totals(offered, kept, sum(dropped_by.values()), dropped_by)

    def last_batch(self, query: str, at: str) -> int | None:
        """The highest batch on record (gaps included) for a query and location; None if there is none."""
        start = self._tail()
        while True:
            tail = [(_last(ln), ln.reason) for ln in self.lines(start) if ln.query == query and ln.at == at]
            # Replays that counted otherwise stand behind later batches: a tail that holds some tells no order.
            if start == 0 or (tail and all(reason != Reason.CONFLICT for _, reason in tail)):
                return max((batch for batch, _ in tail), default=None)
            start = 0

    def reconcile(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        return [*self.torn_now(), *reconcile(self.lines())]

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


def counts_by_place(lines: Iterable[LedgerLine]) -> dict[str, tuple[int, int]]:
    """(offered, kept) at every drop location: the shedder is offered all, the other reasons take from what it kept.

    >>> clicks = [LedgerLine("q", 7, "clicks", "shedder", 10, 8, 2), LedgerLine("q", 7, "clicks", "cleaner", 8, 5, 3)]
    >>> counts_by_place(clicks)
    {'clicks': (10, 5)}
    """
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        offered, kept = found.get(line.at, (0, 0))
        if line.reason == Reason.SHEDDER:
            found[line.at] = offered + line.offered, kept + line.kept
        elif line.reason in (Reason.RETENTION, Reason.ADAPTOR, Reason.CLEANER, Reason.DEAD_LETTER):
            found[line.at] = offered, kept - line.dropped
    return found


def reconcile(lines: Iterable[LedgerLine]) -> list[str]:
    """The differences within ledger lines: unbalanced, conflicting, gaps declared and undeclared."""
    differences = []
    covered: dict[tuple[str, str], set[int]] = {}
    for line in lines:
        place = f"query {line.query}, {line.at}"
        if not line.balanced:
            differences.append(
                f"{place}, batch {line.batch}: offered {line.offered} ≠ kept {line.kept} + dropped {line.dropped}"
            )
        if line.reason == Reason.GAP:
            differences.append(f"{place}: no counts for batches {line.batch} to {_last(line)}")
        if line.reason == Reason.CONFLICT:
            differences.append(
                f"{place}, batch {line.batch}: a replay counted otherwise "
                f"(offered {line.offered}, kept {line.kept}, dropped {line.dropped})"
            )
        covered.setdefault((line.query, line.at), set()).update(range(line.batch, _last(line) + 1))
    for (query, at), batches in covered.items():
        missing = sorted(set(range(min(batches), max(batches) + 1)) - batches)
        if missing:
            differences.append(f"query {query}, {at}: batches missing from the ledger: {missing}")
    return differences


def _last(line: LedgerLine) -> int:
    return line.batch if line.until is None else line.until
