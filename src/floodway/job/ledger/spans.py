"""Sets of integers kept as spans: batches that are accounted for, seconds in which a job ran.

    a gap between two batches of a query is a pause if it is longer than 30 s and than 4 times the gap before it

A batch under overload may take minutes, but each is at most a few times as long as the one before: what is suddenly far
longer is a job that did not run. Rates over days in which nothing ran would say nothing of the load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

PAUSE_SECONDS = 30
GROWTH = 4


class Spans:
    """First and last of each span, in order, without overlap; memory grows with the holes only.

    >>> spans = Spans()
    >>> for first, last in ((0, 2), (5, 6), (3, 3)):
    ...     spans.add(first, last)
    >>> spans.spans, list(spans.holes())
    ([(0, 3), (5, 6)], [(4, 4)])
    """

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """All from `first` to `last`."""
        begin = bisect_left(self.spans, first - 1, key=lambda span: span[1])
        end = begin
        while end < len(self.spans) and self.spans[end][0] <= last + 1:
            first, last = min(first, self.spans[end][0]), max(last, self.spans[end][1])
            end += 1
        self.spans[begin:end] = [(first, last)]

    def holes(self) -> Iterator[tuple[int, int]]:
        """First and last of what is missing between two spans."""
        for (_, before), (after, _) in pairwise(self.spans):
            yield before + 1, after - 1

    def merge(self, other: Spans) -> None:
        """All of another's."""
        for first, last in other.spans:
            self.add(first, last)

    def count(self) -> int:
        """How many there are in all."""
        return sum(last - first + 1 for first, last in self.spans)

    def until(self, most: int) -> int:
        """How many of them are at most `most`."""
        return sum(min(last, most) - first + 1 for first, last in self.spans if first <= most)

    def covers(self, one: int) -> bool:
        """Whether this one is among them."""
        index = bisect_left(self.spans, one, key=lambda span: span[1])
        return index < len(self.spans) and self.spans[index][0] <= one


class Running(Spans):
    """The seconds in which a job ran, from the times of the batches of all its queries.

    >>> running = Running()
    >>> for second in (0, 1, 2, 900, 901):
    ...     running.note("q", second)
    >>> running.spans, running.count()
    ([(0, 2), (900, 901)], 5)
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, int] = {}
        self._gap: dict[str, int] = {}

    def note(self, query: str, second: int) -> None:
        """A batch of the query ended in this second; in the order of its ledger."""
        last = self._last.get(query)
        if second == last:
            return
        self._last[query] = second
        if last is None or second < last:  # a clock that was set back ends no batch
            self.add(second, second)
            return
        gap = second - last
        paused = gap > max(PAUSE_SECONDS, GROWTH * self._gap.get(query, 0))
        self._gap[query] = gap
        self.add(second if paused else last, second)

    def merge(self, other: Spans) -> None:
        """All of another's, to be noted on from where it ended."""
        super().merge(other)
        if isinstance(other, Running):
            self._last.update(other._last)
            self._gap.update(other._gap)

    def snapshot(self) -> dict[str, Any]:
        """As JSON, for `restored`."""
        return {"spans": self.spans, "last": self._last, "gap": self._gap}

    @classmethod
    def restored(cls, body: Mapping[str, Any]) -> Running:
        """From a snapshot; what is no snapshot raises a KeyError, TypeError or ValueError."""
        found = cls()
        found.spans = [(int(first), int(last)) for first, last in body["spans"]]
        found._last = {str(query): int(second) for query, second in body["last"].items()}
        found._gap = {str(query): int(seconds) for query, seconds in body["gap"].items()}
        return found
