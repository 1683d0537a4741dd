"""Counts over time: what the batches cut in each second held, thinned with age, and the seconds in which they came.

A batch holds what came since the one before it was cut. So counts belong to the seconds from the last cut before them
to their own last cut, without pauses: stretches that follow each other share no second and leave none out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from floodway.job.counts import Counts
from floodway.job.running import Running
from floodway.job.thinned import Thinned


@dataclass(slots=True)
class Stretch:
    """Counts of the batches that were cut in a stretch of time, and the second of the last cut."""

    last: int = 0
    counts: Counts = field(default_factory=Counts)

    def merge(self, other: Stretch) -> None:
        """Add another's."""
        self.last = max(self.last, other.last)
        self.counts.merge(other.counts)


class Timeline:
    """The counts of one job by time.

    >>> timeline = Timeline()
    >>> for second in (100, 103, 106):
    ...     timeline.at("q", second).offered["s"] += 30
    >>> counts, seconds = timeline.window(107, 5)
    >>> counts.offered["s"], seconds
    (60, 6)
    """

    def __init__(self) -> None:
        self.running = Running()
        self.last: int | None = None
        """The second of the last cut; None before the first."""
        self._stretches = Thinned(Stretch)

    def at(self, query: str, second: int) -> Counts:
        """The counts to add to for a batch of the query that was cut in this second."""
        self.running.note(query, second)
        return self._at(second)

    def saw(self, counts: Counts, since: int, second: int) -> None:
        """What a job counted between two looks at it: after second `since` and up to this one."""
        self.running.add(min(since + 1, second), second)
        if counts != Counts():
            self._at(second).merge(counts)

    def window(self, until: int, length: int) -> tuple[Counts, int]:
        """Counts of the batches cut in the `length` seconds before second `until`, and the seconds in which they came.

        0 seconds where none was cut. The batch that is running now has no line yet, and its time does not count. Where
        the past is thinned, a stretch belongs to the window that it begins in, with all its seconds.
        """
        found, inside = Counts(), self._stretches.between(until - length, until)
        for stretch in inside:
            found.merge(stretch.counts)
        if not inside:
            return found, 0
        before = self._stretches.before(until - length)
        return found, self.running.until(inside[-1].last) - (self.running.until(before.last) if before else 0)

    def _at(self, second: int) -> Counts:
        stretch = self._stretches.at(second)
        stretch.last = max(stretch.last, second)
        self.last = second if self.last is None else max(self.last, second)
        return stretch.counts
