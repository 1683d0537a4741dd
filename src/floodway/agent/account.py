"""A ledger summed up as it grows: totals by place and reason, counts by second, and whether all of it adds up.

    offered = kept + dropped, at every place; kept at an input = offered − all that was dropped there

Lines are taken in once and forgotten, so memory does not grow with the age of the job: of the time axis the latest
`MOST_SECONDS` are kept, of the batches of a query only how far they reach without a hole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from floodway.agent.running import PAUSE_SECONDS, Running
from floodway.spark.ledger import LedgerLine, Reason, reconcile

MOST_SECONDS = 6 * 3600
MOST_DIFFERENCES = 50
NO_TUPLES = (Reason.GAP, Reason.CONFLICT)


@dataclass(slots=True)
class Counts:
    """Tuples by place: offered and kept at drop locations, dropped by (place, reason), delivered to sinks."""

    offered: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)

    def add(self, line: LedgerLine) -> None:
        """Count one line. The shedder is the first reason a tuple can go; the others take from what it kept."""
        if line.reason in NO_TUPLES:
            return
        if line.reason == Reason.DELIVERED:
            self.delivered[line.at] += line.kept
            return
        if line.reason == Reason.SHEDDER:
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

    def by_place(self) -> dict[str, dict[str, int]]:
        """Dropped tuples as {place: {reason: tuples}}."""
        found: dict[str, dict[str, int]] = {}
        for (at, reason), count in self.dropped.items():
            found.setdefault(at, {})[reason] = count
        return found


class Account:
    """The running sum of one or more ledgers.

    >>> account = Account()
    >>> account.add([LedgerLine("q", 0, "clicks", "shedder", 10, 4, 6, time_us=5_000_000)])
    >>> account.total.by_place(), account.differences()
    ({'clicks': {'shedder': 6}}, [])
    >>> account.add([LedgerLine("q", 2, "clicks", "shedder", 10, 10, 0, time_us=6_000_000)])
    >>> account.differences()
    ['query q, clicks: batches missing from the ledger after 0']
    """

    def __init__(self) -> None:
        self.total = Counts()
        self.seconds: dict[int, Counts] = {}
        self.lines = 0
        self.unreadable = 0
        """Lines that are no ledger lines: whatever they counted is missing from the sums."""
        self.modes: Counter[str] = Counter()
        self.running = Running()
        """When batches ended, over the whole ledger: `seconds` above forgets."""
        self._first = 0
        self._wrong: list[str] = []
        self._reach: dict[tuple[str, str], int] = {}
        self._beyond: dict[tuple[str, str], set[int]] = {}

    def add(self, lines: Iterable[LedgerLine]) -> None:
        """Take in lines, in the order of the file."""
        for line in lines:
            self.lines += 1
            self.total.add(line)
            self.modes[line.mode] += 1
            second = line.time_us // 1_000_000
            if second not in self.seconds:
                self.seconds[second] = Counts()
            self.seconds[second].add(line)
            self.running.note(line.query, second)
            # Alone, a line can be unbalanced, a gap or a conflict; holes between batches are told below.
            if (line.reason in NO_TUPLES or not line.balanced) and len(self._wrong) < MOST_DIFFERENCES:
                self._wrong += reconcile([line])
            self._cover(line)
        for second in sorted(self.seconds)[:-MOST_SECONDS] if len(self.seconds) > MOST_SECONDS else ():
            del self.seconds[second]
        self._first = min(self.seconds, default=0)

    def differences(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        holes = [
            f"query {query}, {at}: batches missing from the ledger after {self._reach[query, at]}"
            for (query, at), beyond in self._beyond.items()
            if beyond
        ]
        lost = [f"lines of the ledger that cannot be read: {self.unreadable}"] if self.unreadable else []
        return [*lost, *self._wrong, *holes][:MOST_DIFFERENCES]

    def window(self, until: int, length: int) -> tuple[Counts, int]:
        """Counts of the batches cut in the `length` seconds before second `until`, and the seconds in which they came.

        A batch holds what came since the one before it was cut. So these are the seconds from the last cut before the
        window to the last one in it: the batch that is running now has no line yet, and its time does not count.
        """
        found, inside = Counts(), [second for second in range(until - length, until) if second in self.seconds]
        for second in inside:
            found.merge(self.seconds[second])
        if not inside:
            return found, length
        reach = range(inside[0] - 1, inside[0] - 1 - max(length, PAUSE_SECONDS), -1)
        before = next((second for second in reach if second in self.seconds), inside[0] - 1)
        return found, inside[-1] - before

    def _cover(self, line: LedgerLine) -> None:
        key = (line.query, line.at)
        beyond = self._beyond.setdefault(key, set())
        reach = self._reach.get(key)
        last = line.batch if line.until is None else line.until
        if reach is None:
            self._reach[key] = last
            return
        if line.batch <= reach + 1:
            reach = max(reach, last)
        else:
            beyond.update(range(line.batch, last + 1))
        while reach + 1 in beyond:
            reach += 1
            beyond.discard(reach)
        self._reach[key] = reach
