"""What a ledger's writer remembers of its lines: the newest batches of every query, however old the job is.

Spark repeats the last batch after a crash, so that is all a writer needs to know lines again. A batch from before is
repeated only by a checkpoint that was restored from a copy; then the log itself is searched.
"""

from __future__ import annotations

KEPT_BATCHES = 1000

Key = tuple[str, int, str, str]
"""Query, batch, location, reason."""
Counts = tuple[int, int, int]
"""Offered, kept, dropped."""


class RecentLines:
    """Counts of the lines of each query's newest batches, at least `kept_batches` of them and at most twice as many.

    >>> recent = RecentLines(kept_batches=1)
    >>> for batch in range(4):
    ...     recent.add(("q", batch, "clicks", "shedder"), (10, 4, 6))
    >>> recent.find(("q", 0, "clicks", "shedder")), recent.find(("q", 3, "clicks", "shedder"))
    (None, (10, 4, 6))
    """

    def __init__(self, *, kept_batches: int | None = None) -> None:
        self._kept_batches = KEPT_BATCHES if kept_batches is None else kept_batches
        self._batches: dict[str, dict[int, dict[tuple[str, str], Counts]]] = {}

    def add(self, key: Key, counts: Counts) -> None:
        """Remember a line, the first of its key."""
        query, batch, at, reason = key
        batches = self._batches.setdefault(query, {})
        batches.setdefault(batch, {}).setdefault((at, reason), counts)
        if len(batches) > 2 * self._kept_batches:
            for old in sorted(batches)[: -self._kept_batches]:
                del batches[old]

    def find(self, key: Key) -> Counts | None:
        """The counts of a line; None if it is not remembered."""
        query, batch, at, reason = key
        return self._batches.get(query, {}).get(batch, {}).get((at, reason))

    def reasons(self, query: str, batch: int, at: str) -> list[str]:
        """The reasons of the lines remembered of a batch at a location."""
        return [reason for place, reason in self._batches.get(query, {}).get(batch, {}) if place == at]
