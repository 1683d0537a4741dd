"""Figures over time: what the batches cut in each second came to, downsampled with age, and the seconds they took.

A batch holds what came since the one before it was cut. So figures belong to the seconds from the last cut before them
to their own last cut, without pauses: stretches that follow each other share no second and leave none out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

from floodway.job.ledger.downsample import Cell, Downsampled
from floodway.job.ledger.spans import Running


class Stretch(Generic[Cell]):
    """The figures of the batches that were cut in a stretch of time, and the second of the last cut."""

    def __init__(self, figures: Cell) -> None:
        self.last = 0
        self.figures = figures

    def merge(self, other: Stretch[Cell]) -> None:
        """Add another's."""
        self.last = max(self.last, other.last)
        self.figures.merge(other.figures)


class Timeline(Generic[Cell]):
    """The figures of one job by time; `make` makes empty ones.

    >>> from floodway.job.ledger.fold import Counts
    >>> timeline = Timeline(Counts)
    >>> for second in (100, 103, 106):
    ...     timeline.at("q", second).offered["s"] += 30
    >>> counts, seconds = timeline.window(107, 5)
    >>> counts.offered["s"], seconds
    (60, 6)
    """

    def __init__(self, make: Callable[[], Cell]) -> None:
        self.running = Running()
        self.last: int | None = None
        """The second of the last cut; None before the first."""
        self._make = make
        self._stretches: Downsampled[Stretch[Cell]] = Downsampled(lambda: Stretch(make()))

    def at(self, query: str, second: int) -> Cell:
        """The figures to add to for a batch of the query that was cut in this second."""
        self.running.note(query, second)
        return self._at(second)

    def saw(self, figures: Cell, since: int, second: int) -> None:
        """What a job counted between two looks at it: after second `since` and up to this one."""
        self.running.add(min(since + 1, second), second)
        if figures != self._make():
            self._at(second).merge(figures)

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
        return found

    def _at(self, second: int) -> Cell:
        stretch = self._stretches.at(second)
        stretch.last = max(stretch.last, second)
        self.last = second if self.last is None else max(self.last, second)
        return stretch.figures
