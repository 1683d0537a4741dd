"""The one fold over ledger lines: sums by place and reason, counts over time, and whether all of it adds up.

    offered = what the first reason was offered        kept = offered − all that was dropped, by whatever reason

At one place a tuple meets the reasons in the order of `ORDER`: the shedder is offered all, and what one reason keeps
the next is offered. So a place's counts are the shedder's, less what the others dropped. A `gap`, a `conflict`
and an `uncertain` line are evidence of something wrong and count no tuples. A gap is over when its batches are counted.

Lines are taken in once and forgotten: memory does not grow with the age of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodway.job.ledger.ledger_line import LedgerLine, Reason
from floodway.job.ledger.timeline import Spans, Timeline

ORDER = (
    *(Reason.SHEDDER, Reason.SHARE, Reason.STALE, Reason.LAG),
    *(Reason.RETENTION, Reason.ADAPTOR, Reason.CLEANER, Reason.DEAD_LETTER),
)
"""The reasons for which a tuple can go, in the order in which they account for it."""
MOST_DIFFERENCES = 50
VERSION = 2
"""Of a snapshot."""


@dataclass(slots=True)
class Counts:
    """Tuples by place: offered and kept at drop locations, dropped by (place, reason), delivered to sinks.

    `recovered` are tuples that were dropped and processed later, `lost` those that a backfill no longer found.

    >>> counts = Counts.of([LedgerLine("q", 7, "s", "shedder", 10, 8, 2), LedgerLine("q", 7, "s", "cleaner", 8, 5, 3)])
    >>> counts.offered["s"], counts.kept["s"], counts.by_place()
    (10, 5, {'s': {'shedder': 2, 'cleaner': 3}})
    """

    offered: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    recovered: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, lines: Iterable[LedgerLine]) -> Counts:
        """The counts of these lines."""
        found = cls()
        for line in lines:
            found.add(line)
        return found

    def add(self, line: LedgerLine) -> None:
        """Count one line."""
        if line.reason == Reason.DELIVERED:
            self.delivered[line.at] += line.kept
        elif line.reason == Reason.RECOVERED:
            self.recovered[line.at] += line.kept
            self.lost[line.at] += line.dropped
        elif line.reason in ORDER:
            if line.reason == ORDER[0]:
                self.offered[line.at] += line.offered
                self.kept[line.at] += line.kept
            else:
                self.kept[line.at] -= line.dropped
            if line.dropped:
                self.dropped[line.at, line.reason] += line.dropped

    def merge(self, other: Counts) -> None:
        """Add another's counts."""
        self.offered.update(other.offered)
        self.kept.update(other.kept)
        self.dropped.update(other.dropped)
        self.delivered.update(other.delivered)
        self.recovered.update(other.recovered)
        self.lost.update(other.lost)

    def copy(self) -> Counts:
        """As they are now, for a reader that does not hold back who goes on counting."""
        return Counts(
            self.offered.copy(),
            self.kept.copy(),
            self.dropped.copy(),
            self.delivered.copy(),
            self.recovered.copy(),
            self.lost.copy(),
        )

    def since(self, before: Counts) -> Counts | None:
        """What came after `before` was counted; None if these are counts of something else, or started over."""
        found = Counts()
        for part in ("offered", "kept", "dropped", "delivered", "recovered", "lost"):
            now, then, more = getattr(self, part), getattr(before, part), getattr(found, part)
            more.update({key: count - then[key] for key, count in now.items() if count != then[key]})
            if part != "kept" and (then.keys() - now.keys() or any(count < 0 for count in more.values())):
                return None
        return found

    def by_place(self) -> dict[str, dict[str, int]]:
        """Dropped tuples as {place: {reason: tuples}}."""
        found: dict[str, dict[str, int]] = {}
        for (at, reason), count in self.dropped.items():
            found.setdefault(at, {})[reason] = count
        return found

    def snapshot(self) -> list[Any]:
        """As JSON, for `restored`."""
        dropped = [[at, reason, count] for (at, reason), count in self.dropped.items()]
        others = (self.delivered, self.recovered, self.lost)
        return [dict(self.offered), dict(self.kept), dropped, *map(dict, others)]

    @classmethod
    def restored(cls, body: Any) -> Counts:
        """From a snapshot; what is no snapshot raises a KeyError, TypeError or ValueError."""
        offered, kept, dropped, *others = body
        delivered, recovered, lost = map(_counter, others)
        by_reason = Counter({(str(at), str(reason)): int(count) for at, reason, count in dropped})
        return cls(_counter(offered), _counter(kept), by_reason, delivered, recovered, lost)

    def to_dict(self) -> dict[str, dict[str, int] | dict[str, dict[str, int]]]:
        """As in the `--json` output of a run: offered and kept by place, dropped by place and reason."""
        return {"offered": dict(self.offered), "kept": dict(self.kept), "dropped": self.by_place()}


class Fold:
    """The running sum of one or more ledgers.

    >>> fold = Fold([LedgerLine("q", 0, "clicks", "shedder", 10, 4, 6, time_us=5_000_000)])
    >>> fold.total.by_place(), fold.differences()
    ({'clicks': {'shedder': 6}}, [])
    >>> fold.add([LedgerLine("q", 2, "clicks", "shedder", 10, 10, 0, time_us=6_000_000)])
    >>> fold.differences()
    ['query q, clicks: batch 1 is missing from the ledger']
    """

    def __init__(self, lines: Iterable[LedgerLine] = ()) -> None:
        self.total = Counts()
        self.timeline: Timeline[Counts] = Timeline(Counts)
        self.lines = 0
        self.unreadable = 0
        """Lines that are no ledger lines: whatever they counted is missing from the sums."""
        self.modes: Counter[str] = Counter()
        self._gaps: dict[tuple[str, str], Spans] = {}
        self._recovered: dict[tuple[str, str], Spans] = {}
        self._wrong: list[str] = []
        self._more = 0
        self._batches: dict[tuple[str, str], Spans] = {}
        self.add(lines)

    def add(self, lines: Iterable[LedgerLine]) -> None:
        """Take in lines, in the order of the file."""
        for line in lines:
            self.lines += 1
            self.total.add(line)
            place = (line.query, line.at)
            if line.reason == Reason.RECOVERED:  # written by a backfill, when the job itself may not run
                self._recovered.setdefault(place, Spans()).add(line.batch, line.batch)
            else:
                self.modes[line.mode] += 1
                is_newest = line.batch >= (self.last_batch(*place) or 0)
                for counts in self.timeline.at(line.query, line.time_us // 1_000_000, is_newest=is_newest):
                    counts.add(line)
            self._batches.setdefault(place, Spans()).add(line.batch, line.last_batch)
            if line.reason == Reason.GAP:
                self._gaps.setdefault(place, Spans()).add(line.batch, line.last_batch)
            elif line.reason == Reason.SHEDDER and place in self._gaps:  # counted after all, by a backfill
                self._gaps[place].discard(line.batch)
            self._check(line)

    @property
    def lost_batches(self) -> int:
        """Batches whose counts were never heard."""
        return sum(spans.count() for spans in self._gaps.values())

    def merge(self, other: Fold) -> None:
        """Add the sums of another ledger."""
        self.total.merge(other.total)
        self.timeline.merge(other.timeline)
        self.lines += other.lines
        self.unreadable += other.unreadable
        self.modes.update(other.modes)
        for text in other._wrong:
            self.differ(text)
        self._more += other._more
        for key, batches in other._batches.items():
            self._batches.setdefault(key, Spans()).merge(batches)
        for key, gaps in other._gaps.items():
            self._gaps.setdefault(key, Spans()).merge(gaps)
        for key, batches in other._recovered.items():
            self._recovered.setdefault(key, Spans()).merge(batches)

    def holds(self, query: str, at: str, batch: int) -> bool:
        """Whether there was a line about this batch."""
        return (query, at) in self._batches and self._batches[query, at].covers(batch)

    def is_gap(self, query: str, at: str, batch: int) -> bool:
        """Whether all that is known of this batch is that nobody has counted it."""
        return (query, at) in self._gaps and self._gaps[query, at].covers(batch)

    def is_recovered(self, query: str, at: str, batch: int) -> bool:
        """Whether a backfill has told what became of the dropped tuples of this batch."""
        return (query, at) in self._recovered and self._recovered[query, at].covers(batch)

    def last_batch(self, query: str, at: str) -> int | None:
        """The highest batch on record (gaps included) for a query and location; None if there is none."""
        batches = self._batches.get((query, at))
        return batches.spans[-1][1] if batches else None

    def batches(self, at: str) -> dict[str, Spans]:
        """The batches on record (gaps included) at a location, by query."""
        return {query: batches for (query, place), batches in self._batches.items() if place == at}

    def places(self) -> set[str]:
        """Every location that has a line."""
        return {at for _, at in self._batches}

    def queries(self) -> dict[str, Spans]:
        """The batches on record at any location, by query."""
        found: dict[str, Spans] = {}
        for (query, _), batches in self._batches.items():
            found.setdefault(query, Spans()).merge(batches)
        return found

    def snapshot(self) -> dict[str, Any]:
        """As JSON, for `restored`: the sums of lines that need not be read again."""
        return {
            "version": VERSION,
            "lines": self.lines,
            "unreadable": self.unreadable,
            "modes": dict(self.modes),
            "total": self.total.snapshot(),
            "timeline": self.timeline.snapshot(Counts.snapshot),
            "wrong": self._wrong,
            "more": self._more,
            "batches": _snapshot(self._batches),
            "gaps": _snapshot(self._gaps),
            "recovered": _snapshot(self._recovered),
        }

    @classmethod
    def restored(cls, body: Mapping[str, Any]) -> Fold:
        """From a snapshot; what is no snapshot of this version raises a KeyError, TypeError or ValueError."""
        if body["version"] != VERSION:
            raise ValueError(f"sums of version {body['version']!r}")
        found = cls()
        found.lines, found.unreadable, found._more = int(body["lines"]), int(body["unreadable"]), int(body["more"])
        found.modes = _counter(body["modes"])
        found.total = Counts.restored(body["total"])
        found.timeline = Timeline.restored(Counts, body["timeline"], Counts.restored)
        found._wrong = [str(text) for text in body["wrong"]]
        found._batches, found._gaps = _restored(body["batches"]), _restored(body["gaps"])
        found._recovered = _restored(body["recovered"])
        return found

    def differences(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        found = [f"lines of the ledger that cannot be read: {self.unreadable}"] if self.unreadable else []
        found += [
            f"query {query}, {at}: no counts for batches {first} to {last}"
            for (query, at), gaps in self._gaps.items()
            for first, last in gaps.spans
        ]
        found += self._wrong
        found += [
            f"query {query}, {at}: {_batches(first, last)} missing from the ledger"
            for (query, at), batches in self._batches.items()
            for first, last in batches.holes()
        ]
        more = self._more + max(0, len(found) - MOST_DIFFERENCES)
        return [*found[:MOST_DIFFERENCES], *([f"… and {more} more"] if more else [])]

    def _check(self, line: LedgerLine) -> None:
        place = f"query {line.query}, {line.at}"
        if not line.balanced:
            self.differ(
                f"{place}, batch {line.batch}: offered {line.offered} ≠ kept {line.kept} + dropped {line.dropped}"
            )
        if line.reason == Reason.CONFLICT:
            self.differ(
                f"{place}, batch {line.batch}: a replay counted otherwise "
                f"(offered {line.offered}, kept {line.kept}, dropped {line.dropped})"
            )

        if line.reason == Reason.UNCERTAIN:
            self.differ(f"{place}, batch {line.batch}: Spark read {line.offered} tuples, and fewer were counted")

    def differ(self, text: str) -> None:
        """Note what does not add up."""
        if len(self._wrong) < MOST_DIFFERENCES:
            self._wrong.append(text)
        else:
            self._more += 1


def _counter(body: Mapping[str, Any]) -> Counter[str]:
    return Counter({str(key): int(count) for key, count in body.items()})


def _snapshot(places: Mapping[tuple[str, str], Spans]) -> list[list[Any]]:
    return [[query, at, spans.spans] for (query, at), spans in places.items()]


def _restored(body: Iterable[Any]) -> dict[tuple[str, str], Spans]:
    found: dict[tuple[str, str], Spans] = {}
    for query, at, spans in body:
        held = found[str(query), str(at)] = Spans()
        held.spans = [(int(first), int(last)) for first, last in spans]
    return found


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
