"""The one fold over ledger lines: sums by place and reason, counts over time, and whether all of it adds up.

    offered = what the first reason was offered        kept = offered − all that was dropped, by whatever reason

At one place a tuple meets the reasons in the order of `ORDER`: the shedder is offered all, and what one reason keeps
the next is offered. So a place's counts are the shedder's, less what the others dropped. A `gap` and a `conflict` are
evidence of something wrong and count no tuples.

Lines are taken in once and forgotten: memory does not grow with the age of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from floodway.job.ledger_line import LedgerLine, Reason
from floodway.job.spans import Spans
from floodway.job.timeline import Timeline

ORDER = (Reason.SHEDDER, Reason.RETENTION, Reason.ADAPTOR, Reason.CLEANER, Reason.DEAD_LETTER)
"""The reasons for which a tuple can go, in the order in which they account for it."""
MOST_DIFFERENCES = 50


@dataclass(slots=True)
class Counts:
    """Tuples by place: offered and kept at drop locations, dropped by (place, reason), delivered to sinks.

    >>> counts = Counts.of([LedgerLine("q", 7, "s", "shedder", 10, 8, 2), LedgerLine("q", 7, "s", "cleaner", 8, 5, 3)])
    >>> counts.offered["s"], counts.kept["s"], counts.by_place()
    (10, 5, {'s': {'shedder': 2, 'cleaner': 3}})
    """

    offered: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)

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

    def copy(self) -> Counts:
        """As they are now, for a reader that does not hold back who goes on counting."""
        return Counts(self.offered.copy(), self.kept.copy(), self.dropped.copy(), self.delivered.copy())

    def since(self, before: Counts) -> Counts | None:
        """What came after `before` was counted; None if these are counts of something else, or started over."""
        found = Counts()
        for part in ("offered", "kept", "dropped", "delivered"):
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
        self._wrong: list[str] = []
        self._more = 0
        self._lines: dict[tuple[str, str, str], Spans] = {}
        self._batches: dict[tuple[str, str], Spans] = {}
        self.add(lines)

    def add(self, lines: Iterable[LedgerLine]) -> None:
        """Take in lines, in the order of the file; what a repeated batch says again counts once, as in the ledger."""
        for line in lines:
            known = self._lines.setdefault((line.query, line.at, line.reason), Spans())
            if known.covers(line.batch):
                continue
            known.add(line.batch, line.last_batch)
            self.lines += 1
            self.total.add(line)
            self.modes[line.mode] += 1
            self.timeline.at(line.query, line.time_us // 1_000_000).add(line)
            self._batches.setdefault((line.query, line.at), Spans()).add(line.batch, line.last_batch)
            self._check(line)

    def differences(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        found = [f"lines of the ledger that cannot be read: {self.unreadable}"] if self.unreadable else []
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
        if line.reason == Reason.GAP:
            self.differ(f"{place}: no counts for batches {line.batch} to {line.last_batch}")
        if line.reason == Reason.CONFLICT:
            self.differ(
                f"{place}, batch {line.batch}: a replay counted otherwise "
                f"(offered {line.offered}, kept {line.kept}, dropped {line.dropped})"
            )

    def differ(self, text: str) -> None:
        """Note what does not add up."""
        if len(self._wrong) < MOST_DIFFERENCES:
            self._wrong.append(text)
        else:
            self._more += 1


def _batches(first: int, last: int) -> str:
    return f"batch {first} is" if first == last else f"batches {first} to {last} are"
