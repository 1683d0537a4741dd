"""When a job ran, from the times of its batches: pauses between two runs are no time in which it processed anything.

    a gap between two batches of a query is a pause if it is longer than 30 s and than 4 times the gap before it

A batch under overload may take minutes, but each is at most a few times as long as the one before: what is suddenly far
longer is a job that stood still. Rates over days in which nothing ran would say nothing of the load.
"""

from __future__ import annotations

from bisect import bisect_left

PAUSE_SECONDS = 30
GROWTH = 4


class Running:
    """Spans of seconds in which a job ran, of all its queries together; memory grows with the pauses only.

    >>> running = Running()
    >>> for second in (0, 1, 2, 900, 901):
    ...     running.note("q", second)
    >>> running.spans, running.seconds
    ([(0, 2), (900, 901)], 5)
    """

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """First and last second of each, in order, without overlap."""
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

    @property
    def seconds(self) -> int:
        """In all, at least 1 after the first batch."""
        return sum(last - first + 1 for first, last in self.spans)

    def until(self, second: int) -> int:
        """How many of them were over when this second was."""
        return sum(min(last, second) - first + 1 for first, last in self.spans if first <= second)

    def covers(self, second: int) -> bool:
        """Whether it ran in this second."""
        return any(first <= second <= last for first, last in self.spans)

    def add(self, first: int, last: int) -> None:
        """It ran from second `first` to second `last`."""
        begin = bisect_left(self.spans, first - 1, key=lambda span: span[1])
        end = begin
        while end < len(self.spans) and self.spans[end][0] <= last + 1:
            first, last = min(first, self.spans[end][0]), max(last, self.spans[end][1])
            end += 1
        self.spans[begin:end] = [(first, last)]
