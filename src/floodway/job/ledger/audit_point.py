"""How far a ledger has been audited, so that the next audit looks at what came since.

    STATE/audit.json      the position in the ledger, and for every query what its batches before came to

The newest batch of a query may not have all its lines yet: it is checked, and its lines are kept as `open` for the
next audit, which checks it again. An audit that finds a difference leaves the point where it was, so that the next one
looks again. What retention removes in between stays a difference until an audit starts over.

Where lines were removed before any audit has read them, only their sums are left: all that was ever counted less the
lines that are there. They are one query's if no other has written at the place, else they are not known.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from floodway.job.ledger.fold import Counts, Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.store.store import Store, StoreError

POINT = "audit.json"
MOST_FOUND = 50
REMOVED = "in lines that retention has removed since: "

Position = Annotated[int, Field(ge=0, lt=1 << 63)]
"""In the ledger: bytes or appends."""
Positions = dict[int, int]
"""By partition."""


@dataclass(slots=True)
class PlaceSums:
    """Tuples of one query at one place; `known` is False where its removed lines cannot be told from another's."""

    offered: int = 0
    delivered: int = 0
    malformed: int = 0
    known: bool = True

    def add(self, line: LedgerLine) -> None:
        """Count a line."""
        if line.reason == Reason.SHEDDER:
            self.offered += line.offered
        elif line.reason == Reason.DELIVERED:
            self.delivered += line.kept
        elif line.reason == Reason.DEAD_LETTER:
            self.malformed += line.dropped


@dataclass(slots=True)
class QueryPoint:
    """One query up to its batch `last`.

    `ends` say where each source was read up to, `next` where the batches after `last` begin in each sink. `forgotten`
    are batches (first, last, how many) whose decisions Spark no longer had when they were audited.
    """

    last: int = -1
    places: dict[str, PlaceSums] = field(default_factory=dict)
    ends: dict[str, Positions] = field(default_factory=dict)
    next: dict[str, Positions] = field(default_factory=dict)
    forgotten: tuple[int, int, int] | None = None
    loose: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def sums(self, at: str) -> PlaceSums:
        """What was counted at a place."""
        return self.places.get(at, PlaceSums())

    def waiting(self) -> list[LedgerLine]:
        """The lines that are `open`; ValueError for what is none."""
        return [LedgerLine.decode(text.encode()) for text in self.open]


@dataclass(slots=True)
class AuditPoint:
    """See the module. By segment: how many of its lines were read, and their checksum; `kept_from` is the first one."""

    ledger: str = ""
    position: Position = 0
    lines: int = 0
    kept_from: Position = 0
    segments: dict[int, tuple[int, int]] = field(default_factory=dict)
    queries: dict[str, QueryPoint] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    version: Literal[1] = 1


_FORM = TypeAdapter(AuditPoint)


@dataclass(slots=True)
class AuditedLedger:
    """A ledger as one audit sees it: the sums of all lines, and by query the lines that came since the last audit.

    `before` is where the last audit has ended, `after` where the next may begin. `removed` lines have been read by no
    audit. `differences` and `unchecked` are what the ledger itself shows.
    """

    store: Store
    before: AuditPoint
    after: AuditPoint
    fold: Fold = field(default_factory=Fold)
    lines: dict[str, list[LedgerLine]] = field(default_factory=dict)
    removed: int = 0
    differences: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    _left: AuditPoint = field(default_factory=AuditPoint)

    def query(self, key: str) -> tuple[QueryPoint, list[LedgerLine]]:
        """Where the last audit has left a query, and its lines of later batches."""
        passed = self.before.queries.get(key, QueryPoint())
        return passed, [line for line in self.lines.get(key, []) if line.batch > passed.last]

    def total(self, key: str, at: str) -> PlaceSums:
        """All that a query has counted at a place."""
        passed, lines = self.query(key)
        found = replace(passed.sums(at))
        for line in lines:
            if line.at == at:
                found.add(line)
        return found

    def settle(self, key: str, last: int) -> None:
        """Pass the batches of a query up to `last`; the lines of later ones stay open for the next audit."""
        passed, lines = self.query(key)
        places = {at: replace(sums) for at, sums in passed.places.items()}
        for line in lines:
            if line.batch <= last:
                places.setdefault(line.at, PlaceSums()).add(line)
        self.after.queries[key] = replace(
            deepcopy(passed),
            last=max(passed.last, last),
            places=places,
            open=[line.encode().decode().rstrip() for line in lines if line.batch > last],
        )

    def newest(self, key: str) -> int:
        """The newest batch of a query; -1 if there is none."""
        passed, lines = self.query(key)
        return max((line.batch for line in lines), default=passed.last)

    def close(self, differences: Sequence[str]) -> list[str]:
        """Leave the point for the next audit; a sentence if that was not possible."""
        standing = set(self.fold.differences())
        new = [text for text in differences if text not in standing and not text.startswith(REMOVED)]
        point = self._left if new else self.after
        point = replace(point, found=[text for text in differences if text not in standing][:MOST_FOUND])
        try:
            self.store.write(POINT, json.dumps(asdict(point)).encode())
        except StoreError as error:
            return [f"{POINT} was not written, so that the next audit reads the same again: {error.message}"]
        return []


def open_ledger(store: Store, *, full: bool) -> AuditedLedger:
    """Read what came since the last audit; with `full` all that is there."""
    ledger = Ledger(store)
    if not ledger.exists():
        return AuditedLedger(store, AuditPoint(), AuditPoint())
    fresh = AuditPoint(ledger.identity() or "")
    last, notes = _last_point(store, fresh)
    before = fresh if full else last
    fold, parts, end = ledger.look(before.position)
    if end < before.position:
        notes.append(
            "the ledger ends before the place that the last audit had reached, so it was audited from its start"
        )
        last = before = fresh
        fold, parts, end = ledger.look(0)
    begins = ledger.segments()
    kept_from = begins[0] if begins else 0
    by_segment = _by_segment(parts, begins)
    lines = [line for raw in by_segment.values() for line in _decoded(raw)]
    removed = fold.lines - before.lines - len(lines) if kept_from > before.position else 0
    found = fold.differences()
    if full:
        found += [*Fold(lines).differences(), *_changed(by_segment, last), *([] if removed else _sums(fold, lines))]
    else:
        gone = kept_from > last.kept_from
        told = [text if text.startswith(REMOVED) else f"{REMOVED}{text}" for text in last.found]
        found += [text for text, was in zip(told, last.found, strict=True) if gone or was.startswith(REMOVED)]
    if removed:
        notes.append(f"retention has removed {removed} of {fold.lines} lines, of which only the sums were checked")
    audited = AuditedLedger(
        store,
        before=deepcopy(before),
        after=AuditPoint(before.ledger, end, before.lines + removed + len(lines), kept_from),
        fold=fold,
        lines={query: [] for query in fold.queries()},
        removed=removed,
        differences=list(dict.fromkeys(found)),
        unchecked=notes,
        _left=replace(before, segments=last.segments, kept_from=kept_from),
    )
    audited.after.segments = _checksums(by_segment, before, begins)
    for key, one in audited.before.queries.items():
        waiting = one.waiting()
        if removed:  # what came after them is not known, so they count as removed as well
            for line in waiting:
                one.places.setdefault(line.at, PlaceSums()).add(line)
        else:
            audited.lines.setdefault(key, []).extend(waiting)
    for line in lines:
        audited.lines.setdefault(line.query, []).append(line)
    if removed:
        _assign_removed(audited)
    for key in audited.lines:
        audited.settle(key, audited.newest(key) - 1)
    return audited


def _last_point(store: Store, fresh: AuditPoint) -> tuple[AuditPoint, list[str]]:
    """Where the last audit has ended; the start, and why, if that cannot be used."""
    raw = store.read(POINT)
    if raw is None:
        return fresh, []
    try:
        found = _FORM.validate_json(raw)
        for one in found.queries.values():
            one.waiting()
    except ValueError:  # pydantic's ValidationError is one
        return fresh, [f"{POINT} is not of this version, so everything was audited again"]
    return (found if found.ledger == fresh.ledger else fresh), []


def _by_segment(parts: Sequence[tuple[int, bytes]], begins: Sequence[int]) -> dict[int, list[bytes]]:
    """Raw lines by the segment that they are in; no part reaches over the end of one."""
    found: dict[int, list[bytes]] = {}
    for end, part in parts:
        begin = max((one for one in begins if one < end), default=0)
        found.setdefault(begin, []).extend(part.splitlines())
    return found


def _decoded(raw: Sequence[bytes]) -> Iterator[LedgerLine]:
    for one in raw:
        try:
            yield LedgerLine.decode(one)
        except ValueError:
            continue  # counted by the fold


def _checksums(
    by_segment: dict[int, list[bytes]], before: AuditPoint, begins: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """By segment that is still there: lines that were read, then and now, and their checksum."""
    found = {begin: one for begin, one in before.segments.items() if begin in begins and before.position}
    for begin, raw in by_segment.items():
        count, crc = found.get(begin, (0, 0))
        found[begin] = count + len(raw), _crc(raw, crc)
    return found


def _crc(raw: Sequence[bytes], crc: int = 0) -> int:
    return zlib.crc32(b"\n".join((*raw, b"")), crc)


def _changed(by_segment: dict[int, list[bytes]], last: AuditPoint) -> list[str]:
    """Segments that are not as the last audit has read them."""
    return [
        f"segment {begin} of the ledger has changed since the last audit"
        for begin, raw in by_segment.items()
        if begin in last.segments
        for count, crc in (last.segments[begin],)
        if len(raw) < count or _crc(raw[:count]) != crc
    ]


def _sums(fold: Fold, lines: Sequence[LedgerLine]) -> list[str]:
    """The sums that are saved beside the lines, against the lines."""
    said, counted = fold.total.to_dict(), Counts.of(lines).to_dict()
    return [] if said == counted else [f"the ledger has saved the sums {said}, its lines come to {counted}"]


def _assign_removed(audited: AuditedLedger) -> None:
    """Add what removed lines came to, where it is known whose they were."""
    fold, points = audited.fold, audited.before.queries
    held = Counts.of(line for lines in audited.lines.values() for line in lines)
    for at in fold.places():
        passed = [one.sums(at) for one in points.values()]
        writers = list(fold.batches(at))
        for key in writers:
            sums = points.setdefault(key, QueryPoint()).places.setdefault(at, PlaceSums())
            if len(writers) > 1:
                sums.known = False
            else:
                lost = (at, str(Reason.DEAD_LETTER))
                sums.offered += fold.total.offered[at] - held.offered[at] - sum(one.offered for one in passed)
                sums.delivered += fold.total.delivered[at] - held.delivered[at] - sum(one.delivered for one in passed)
                sums.malformed += fold.total.dropped[lost] - held.dropped[lost] - sum(one.malformed for one in passed)


MOST = 20
"""Sentences about single batches of one place; of more only the number is told."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was checked, what did not agree, and what could not be checked from here."""

    batches: int
    lines: int
    tuples_offered: int
    tuples_delivered: int
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]


@dataclass(slots=True)
class Findings:
    """Collected while an audit goes on.

    >>> found = Findings()
    >>> found.compare("q", "the log holds", {0: 5, 1: 7}, {0: 5, 1: 6})
    >>> found.differences
    ['q, batch 1: the ledger says 7 tuples were delivered, the log holds 6']
    """

    differences: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def differ(self, texts: Iterable[str]) -> None:
        """Add differences of one kind at one place; the first ones in full."""
        told = list(texts)
        self.differences += told[:MOST]
        if len(told) > MOST:
            self.differences.append(f"… and {len(told) - MOST} more like the last")

    def compare(self, place: str, there: str, said: Mapping[int, int], found: Mapping[int, int]) -> None:
        """Compare tuples batch by batch."""
        self.differ(
            f"{place}, batch {batch}: the ledger says {said.get(batch, 0)} tuples were delivered, "
            f"{there} {found.get(batch, 0)}"
            for batch in sorted(said.keys() | found.keys())
            if said.get(batch, 0) != found.get(batch, 0)
        )


def delivered(lines: Sequence[LedgerLine], sink: str) -> dict[int, int]:
    """Tuples that each batch delivered to a sink."""
    return {line.batch: line.kept for line in lines if line.at == sink and line.reason == Reason.DELIVERED}


def malformed(lines: Sequence[LedgerLine], at: str) -> dict[int, int]:
    """Tuples of each batch that went to the dead-letter log of a source."""
    return {line.batch: line.dropped for line in lines if line.at == at and line.reason == Reason.DEAD_LETTER}
