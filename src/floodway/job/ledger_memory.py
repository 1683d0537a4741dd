"""What a ledger's writer remembers of its lines: the newest batches of every query, however old the job is.

Spark repeats the last batch after a crash, so that is all a writer needs to know lines again. A batch from before is
repeated only by a checkpoint that was restored from a copy; then the file itself is searched.
"""

from __future__ import annotations

KEPT_BATCHES = 1000

Key = tuple[str, int, str, str]
Counts = tuple[int, int, int]
"""Offered, kept, dropped."""


class RecentLines:
    """Counts of the lines of each query's newest batches, at least `kept_batches` of them and at most twice as many.

    `whole` says that the file was read from its first line; else only a tail of it, and of a query's first batch in the
    tail a part may lie before.

    >>> recent = RecentLines(kept_batches=1)
    >>> for batch in range(4):
    ...     recent.add(("q", batch, "clicks", "shedder"), (10, 4, 6))
    >>> recent.knows("q", 3), recent.knows("q", 1), recent.find(("q", 3, "clicks", "shedder"))
    (True, False, (10, 4, 6))
    """

    def __init__(self, *, kept_batches: int = KEPT_BATCHES, whole: bool = True) -> None:
        self._kept_batches = kept_batches
        self._whole = whole
        self._batches: dict[str, dict[int, dict[tuple[str, str], Counts]]] = {}
        self._floor: dict[str, int] = {}

    def add(self, key: Key, counts: Counts) -> None:
        """Remember a line, the first of its key."""
        query, batch, at, reason = key
        if query not in self._batches and not self._whole:
            self._floor[query] = batch + 1
        batches = self._batches.setdefault(query, {})
        batches.setdefault(batch, {}).setdefault((at, reason), counts)
        if len(batches) > 2 * self._kept_batches:
            for old in sorted(batches)[: -self._kept_batches]:
                del batches[old]
            self._floor[query] = max(min(batches), self._floor.get(query, 0))

    def knows(self, query: str, batch: int) -> bool:
        """Whether a line of this batch that is not remembered is not in the file either."""
        return batch >= self._floor.get(query, 0) if query in self._batches else self._whole

    def find(self, key: Key) -> Counts | None:
        """The counts of a line; None if it is not remembered."""
        query, batch, at, reason = key
        return self._batches.get(query, {}).get(batch, {}).get((at, reason))
