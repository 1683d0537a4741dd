"""Figures by the second, downsampled with age: a run of weeks has its whole past in bounded memory.

    the last hour by the second, the last day by the minute, the last week by ten minutes, a quarter by the hour,
    and before that by the day

Cells are merged, never forgotten: whatever is summed in them adds up as if nothing had been downsampled.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, Protocol, Self, TypeVar

from floodway.job.ledger.spans import Spans

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
