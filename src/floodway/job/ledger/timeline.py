"""Figures over time: what the batches cut in each second came to, downsampled with age, and the seconds they took.

A batch holds what came since the one before it was cut. So figures belong to the seconds from the last cut before them
to their own last cut, without pauses: stretches that follow each other share no second and leave none out.

Figures by the second, downsampled with age: a run of weeks has its whole past in bounded memory.

    the last hour by the second, the last day by the minute, the last week by ten minutes, a quarter by the hour,
    and before that by the day

Cells are merged, never forgotten: whatever is summed in them adds up as if nothing had been downsampled.

Sets of integers kept as spans: batches that are accounted for, seconds in which a job ran.

    a gap between two batches of a query is a pause if it is longer than 30 s and than 4 times the gap before it

A batch under overload may take minutes, but each is at most a few times as long as the one before: what is suddenly far
longer is a job that did not run. Rates over days in which nothing ran would say nothing of the load.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Generic, Protocol, Self, TypeVar

PAUSE_SECONDS = 30
GROWTH = 4
WINDOW_SECONDS = 10
"""What is shown as "now" is of so long; a clock that is set back by less is not noticed."""
MOST_LATEST = 256
"""Queries whose last batches are known; of more, those that were silent longest are forgotten."""


class Spans:
    """First and last of each span, in order, without overlap; memory grows with the holes only.

    >>> spans = Spans()
    >>> for first, last in ((0, 2), (5, 6), (3, 3)):
    ...     spans.add(first, last)
    >>> spans.spans, list(spans.holes())
    ([(0, 3), (5, 6)], [(4, 4)])
    >>> spans.discard(2)
    >>> spans.spans
    [(0, 1), (3, 3), (5, 6)]
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

    def discard(self, one: int) -> None:
        """All but this one."""
        parts = [((first, min(last, one - 1)), (max(first, one + 1), last)) for first, last in self.spans]
        self.spans = [part for both in parts for part in both if part[0] <= part[1]]

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


HOUR, DAY = 3600, 86_400
STEPS = ((1, HOUR), (60, DAY), (600, 7 * DAY), (HOUR, 90 * DAY), (DAY, 0))
"""Length of a cell, and until which age it is so short, in seconds; each length is a multiple of the one before."""


class Mergeable(Protocol):
    """What a cell holds."""

    def merge(self, other: Self) -> None:
        """Add what a later cell holds."""


Cell = TypeVar("Cell", bound=Mergeable)


class Downsampled(Generic[Cell]):
    """Cells by the second that they begin with; ask for one with `at`, and add to it.

    Seconds may come in any order. What is old is judged by the latest one, so that a run that ended stays as it is.
    """

    def __init__(self, make: Callable[[], Cell]) -> None:
        self._make = make
        self._cells: dict[int, Cell] = {}
        self._begins: list[int] = []
        self._edges = [0] * (len(STEPS) - 1)
        """By level: the first second that is still in cells of its length."""

    def __len__(self) -> int:
        return len(self._begins)

    def at(self, second: int) -> Cell:
        """The cell that this second is in."""
        if not self._begins or second > self._begins[-1]:
            self._downsample(second)
        begin = self._begin(second)
        if begin not in self._cells:
            self._cells[begin] = self._make()
            insort(self._begins, begin)
        return self._cells[begin]

    def between(self, begin: int, end: int) -> list[Cell]:
        """The cells that begin in [begin, end), in order."""
        here = self._begins[bisect_left(self._begins, begin) : bisect_left(self._begins, end)]
        return [self._cells[one] for one in here]

    def before(self, second: int) -> Cell | None:
        """The last cell that begins before this second."""
        index = bisect_left(self._begins, second)
        return self._cells[self._begins[index - 1]] if index else None

    def cells(self) -> list[Cell]:
        """All of them, in order."""
        return [self._cells[one] for one in self._begins]

    def items(self) -> list[tuple[int, Cell]]:
        """All of them with the second that each begins with, in order."""
        return [(one, self._cells[one]) for one in self._begins]

    def _begin(self, second: int) -> int:
        step = next((step for (step, _), edge in zip(STEPS, self._edges, strict=False) if second >= edge), STEPS[-1][0])
        return second // step * step

    def _downsample(self, latest: int) -> None:
        before = self._edges
        self._edges = [(latest - age) // longer * longer for (_, age), (longer, _) in pairwise(STEPS)]
        # Only what an edge has passed: everything newer would make each cell as expensive as a week of them. After a
        # pause a cell skips levels: then the stretches of these levels overlap, and are one.
        passed = Spans()
        for old, new in zip(before, self._edges, strict=True):
            if new > old:
                passed.add(old, new - 1)
        for begin, end in passed.spans:
            self._move(begin, end + 1)

    def _move(self, begin: int, end: int) -> None:
        """Put the cells that begin in [begin, end) into cells of the length that their age asks for."""
        first, last = bisect_left(self._begins, begin), bisect_left(self._begins, end)
        moved: dict[int, Cell] = {}
        for one in self._begins[first:last]:
            cell, target = self._cells.pop(one), self._begin(one)
            if target in moved:
                moved[target].merge(cell)
            else:
                moved[target] = cell
        self._begins[first:last] = list(moved)
        self._cells.update(moved)


class TimeCell(Generic[Cell]):
    """The figures of the batches that were cut in a stretch of time, and the second of the last cut."""

    def __init__(self, figures: Cell) -> None:
        self.last = 0
        self.figures = figures

    def merge(self, other: TimeCell[Cell]) -> None:
        """Add another's."""
        self.last = max(self.last, other.last)
        self.figures.merge(other.figures)


class Timeline(Generic[Cell]):
    """The figures of one job by time; `make` makes empty ones.

    >>> from floodway.job.ledger.fold import Counts
    >>> timeline = Timeline(Counts)
    >>> for second in (100, 103, 106):
    ...     for cell in timeline.at("q", second):
    ...         cell.offered["s"] += 30
    >>> counts, seconds = timeline.window(107, 5)
    >>> counts.offered["s"], seconds
    (60, 6)

    What came last is known by the order of the batches too, not by their times alone: a clock that was set back by an
    hour would else hide the batches of that hour behind those before it.

    >>> for second in (40, 41):
    ...     for cell in timeline.at("q", second):
    ...         cell.offered["s"] += 90
    >>> timeline.end(at_seconds=42.5)
    42
    >>> counts, seconds = timeline.latest(42)
    >>> counts.offered["s"], seconds
    (180, 2)
    """

    def __init__(self, make: Callable[[], Cell]) -> None:
        self.running = Running()
        self.last: int | None = None
        """The second of the last cut; None before the first."""
        self._make = make
        self._stretches: Downsampled[TimeCell[Cell]] = Downsampled(lambda: TimeCell(make()))
        self._latest: dict[str, dict[int, Cell]] = {}
        """Of each query the last batches since its clock was set back, by second; who was heard last comes last."""

    def at(self, query: str, second: int, *, is_newest: bool = True) -> tuple[Cell, ...]:
        """The figures to add to for a batch of the query that was cut in this second.

        One that is not the newest of its query was counted later than it came.
        """
        if not is_newest:
            self.running.add(second, second)
            return (self._at(second),)
        self.running.note(query, second)
        return self._at(second), self._coming(query, second)

    def saw(self, figures: Cell, since: int, second: int) -> None:
        """What a job counted between two looks at it: after second `since` and up to this one."""
        self.running.add(min(since + 1, second), second)
        if figures != self._make():
            self._at(second).merge(figures)
            self._coming("", second).merge(figures)

    def end(self, at_seconds: float = math.inf) -> int | None:
        """The second after the last cut; None before the first.

        What is stamped much later than the time that it is now was stamped before the clock was set back, and counts
        only where nothing else is known.
        """
        lasts = [max(cells) for cells in self._latest.values()] or ([] if self.last is None else [self.last])
        past = [last for last in lasts if last <= at_seconds + WINDOW_SECONDS]
        return max(past or lasts, default=-1) + 1 or None

    def latest(self, until: int, length: int = WINDOW_SECONDS) -> tuple[Cell, int]:
        """As `window`, of up to `WINDOW_SECONDS` before an `end`, without what was stamped so before a step back."""
        if not self._latest:
            return self.window(until, length)
        since, found = until - length, self._make()
        past = sorted(second for cells in self._latest.values() for second in cells if second < until)
        if not past or past[-1] < since:
            return found, 0
        for cells in self._latest.values():
            for second, cell in cells.items():
                if since <= second < until:
                    found.merge(cell)
        before = max((second for second in past if second < since), default=past[0] - 1)
        return found, self.running.until(past[-1]) - self.running.until(before)

    def window(self, until: int, length: int) -> tuple[Cell, int]:
        """Figures of the batches cut in the `length` seconds before second `until`, and the seconds they took.

        0 seconds where none was cut. The batch that is running now has no line yet, and its time does not count. Where
        the past is downsampled, a stretch belongs to the window that it begins in, with all its seconds.
        """
        found, inside = self._make(), self._stretches.between(until - length, until)
        for stretch in inside:
            found.merge(stretch.figures)
        if not inside:
            return found, 0
        before = self._stretches.before(until - length)
        return found, self.running.until(inside[-1].last) - (self.running.until(before.last) if before else 0)

    def merge(self, other: Timeline[Cell]) -> None:
        """Add another job's."""
        for begin, stretch in other._stretches.items():
            self._stretches.at(begin).merge(stretch)
        for query, cells in other._latest.items():
            for second, cell in cells.items():
                self._newest(query, second).merge(cell)
        self.running.merge(other.running)
        self.last = max((last for last in (self.last, other.last) if last is not None), default=None)

    def snapshot(self, of: Callable[[Cell], Any]) -> dict[str, Any]:
        """As JSON, for `restored`; `of` makes it of one cell's figures."""
        cells = [[begin, one.last, of(one.figures)] for begin, one in self._stretches.items()]
        return {"running": self.running.snapshot(), "last": self.last, "cells": cells}

    @classmethod
    def restored(cls, make: Callable[[], Cell], body: Mapping[str, Any], of: Callable[[Any], Cell]) -> Timeline[Cell]:
        """From a snapshot; what is no snapshot raises a KeyError, TypeError or ValueError."""
        found = cls(make)
        found.running = Running.restored(body["running"])
        found.last = None if body["last"] is None else int(body["last"])
        # The latest first, so that every cell is of the length that its age asks for.
        for begin, last, figures in reversed(body["cells"]):
            stretch = found._stretches.at(int(begin))
            stretch.last, stretch.figures = int(last), of(figures)
        for _, stretch in found._stretches.items()[-WINDOW_SECONDS - 1 :]:
            found._newest("", stretch.last).merge(stretch.figures)
        return found

    def _coming(self, query: str, second: int) -> Cell:
        """The figures of the query's last batches in this second; those before a step back are not among the last."""
        cells = self._latest.get(query)
        if cells and second < max(cells) - WINDOW_SECONDS:
            del self._latest[query]
        return self._newest(query, second)

    def _newest(self, query: str, second: int) -> Cell:
        cells = self._latest[query] = self._latest.pop(query, {})
        if second not in cells:
            cells[second] = self._make()
        found = cells[second]
        if len(cells) > WINDOW_SECONDS + 1:
            del cells[min(cells)]
        if len(self._latest) > MOST_LATEST:
            del self._latest[next(iter(self._latest))]
        return found

    def _at(self, second: int) -> Cell:
        stretch = self._stretches.at(second)
        stretch.last = max(stretch.last, second)
        self.last = second if self.last is None else max(self.last, second)
        return stretch.figures
