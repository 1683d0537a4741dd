"""The ledger: per micro-batch, drop location and reason, what was offered, kept and dropped.

Append-only JSON lines; one line is one object with the fields of `LedgerLine`, keys sorted, e.g.

    {"at":"clicks","batch":7,"dropped":600,"keep_ppm":400000,"kept":400,"mode":"enforce","offered":1000,
     "plan":"3","query":"6f0c…","reason":"shedder","time_us":1735689600000000,"until":null}

(on one line in the file). Every append is one `write` on an O_APPEND descriptor followed by `fsync`, under an
exclusive `flock`: one writer at a time, also across processes. A key (query, batch, at, reason) is written once: a
replayed batch that says the same again is ignored, one that says otherwise is kept beside it as a `conflict`. A crash
in the middle of an append leaves a last line without a newline; readers pass over it, the next writer cuts it away,
both count it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from floodway.errors import FloodwayError


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
    def key(self) -> tuple[str, int, str, str]:
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
        for field in fields(cls):
            value = body.get(field.name)
            if field.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"{field.name} is {value!r}, not an integer")
            if field.type == "str" and not isinstance(value, str):
                raise ValueError(f"{field.name} is {value!r}, not a string")
        known: dict[str, Any] = {field.name: body.get(field.name) for field in fields(cls)}
        return cls(**known)


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
        self._known: dict[tuple[str, int, str, str], LedgerLine] = {}
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
                self._known.update((line.key, line) for line in fresh)
                self._known_bytes += len(payload)
        return len(fresh)

    def read(self) -> list[LedgerLine]:
        """All whole lines, in the order written; a torn last line is passed over."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return self._decode(raw[: raw.rfind(b"\n") + 1], first=1)

    def totals(self, query: str | None = None) -> Totals:
        """Sums over all lines (of one query), conflicts and gaps left out.

        `offered` and `kept` of one tuple count at every location it passes.
        """
        counted = [
            line
            for line in self.read()
            if line.reason not in (Reason.GAP, Reason.CONFLICT) and (query is None or line.query == query)
        ]
        dropped_by: dict[tuple[str, str], int] = {}
        for line in counted:
            place = (line.at, line.reason)
            dropped_by[place] = dropped_by.get(place, 0) + line.dropped
        return Totals(
            offered=sum(line.offered for line in counted),
            kept=sum(line.kept for line in counted),
            dropped=sum(dropped_by.values()),
            dropped_by=dropped_by,
        )

    def last_batch(self, query: str, at: str) -> int | None:
        """The highest batch on record (gaps included) for a query and location; None if there is none."""
        batches = [_last(line) for line in self.read() if line.query == query and line.at == at]
        return max(batches, default=None)

    def reconcile(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        return [*self._torn_now(), *reconcile(self.read())]

    def _torn_now(self) -> list[str]:
        raw = self.path.read_bytes() if self.path.exists() else b""
        torn = len(raw) - (raw.rfind(b"\n") + 1)
        return [f"the last line is torn: {torn} bytes without a newline"] if torn else []

    def _fresh(self, wanted: Sequence[LedgerLine]) -> Iterator[LedgerLine]:
        seen: dict[tuple[str, int, str, str], LedgerLine] = {}
        for line in wanted:
            before = seen.get(line.key) or self._known.get(line.key)
            if before is None:
                seen[line.key] = line
                yield line
            elif (before.offered, before.kept, before.dropped) != (line.offered, line.kept, line.dropped):
                # The first account stays; the second is evidence that a replay did not repeat the first run.
                conflict = LedgerLine(**{**asdict(line), "reason": Reason.CONFLICT.value})
                if conflict.key not in seen and conflict.key not in self._known:
                    seen[conflict.key] = conflict
                    yield conflict

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
        """Learn what others wrote since, and cut away a torn last line."""
        size = os.fstat(descriptor).st_size
        if size < self._known_bytes:
            self._known.clear()
            self._known_bytes = 0
        raw = os.pread(descriptor, size - self._known_bytes, self._known_bytes)
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.ftruncate(descriptor, self._known_bytes + whole)
            self.torn += 1
        for line in self._decode(raw[:whole], first=len(self._known) + 1):
            self._known.setdefault(line.key, line)
        self._known_bytes += whole

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

    def _decode(self, raw: bytes, *, first: int) -> list[LedgerLine]:
        lines = []
        for number, stored in enumerate(raw.splitlines(), start=first):
            try:
                lines.append(LedgerLine.decode(stored))
            except ValueError as error:
                raise LedgerError(
                    f"{self.path}, line {number}: not a ledger line ({error})",
                    hint="the file was changed by something else; move it away to start a new ledger",
                ) from error
        return lines


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


def reconcile(lines: Sequence[LedgerLine]) -> list[str]:
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
