"""A ledger summed up as it grows: totals by place and reason, counts by second, and whether all of it adds up.

    offered = kept + dropped, at every place; kept at an input = offered − all that was dropped there

Lines are taken in once and forgotten, so memory does not grow with the age of the job: the time axis is thinned with
age, and of the batches of a query only how far they reach without a hole is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from floodway.job.counts import NO_TUPLES, Counts
from floodway.job.ledger import LedgerLine, reconcile
from floodway.job.timeline import Timeline

MOST_DIFFERENCES = 50


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
        self.timeline = Timeline()
        self.lines = 0
        self.unreadable = 0
        """Lines that are no ledger lines: whatever they counted is missing from the sums."""
        self.modes: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._reach: dict[tuple[str, str], int] = {}
        self._beyond: dict[tuple[str, str], set[int]] = {}

    def add(self, lines: Iterable[LedgerLine]) -> None:
        """Take in lines, in the order of the file."""
        for line in lines:
            self.lines += 1
            self.total.add(line)
            self.modes[line.mode] += 1
            self.timeline.at(line.query, line.time_us // 1_000_000).add(line)
            # Alone, a line can be unbalanced, a gap or a conflict; holes between batches are told below.
            if (line.reason in NO_TUPLES or not line.balanced) and len(self._wrong) < MOST_DIFFERENCES:
                self._wrong += reconcile([line])
            self._cover(line)

    def differences(self) -> list[str]:
        """Every way in which the ledger fails to account for its tuples, as sentences; empty if it does."""
        holes = [
            f"query {query}, {at}: batches missing from the ledger after {self._reach[query, at]}"
            for (query, at), beyond in self._beyond.items()
            if beyond
        ]
        lost = [f"lines of the ledger that cannot be read: {self.unreadable}"] if self.unreadable else []
        return [*lost, *self._wrong, *holes][:MOST_DIFFERENCES]

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
