"""How a fragment was served over a time: the delay of its tuples and the share of them that was kept.

Whoever runs a fragment notes both with every measurement; whoever has passed it on notes what the next one's bills
tell. A bill for a period then says how it was served, and its giver, that of a whole chain too, is told.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from statistics import fmean, median

SAMPLES = 2000
"""How many notes are kept of a fragment: half an hour of measurements."""

NOT_SERVED = 1e9
"""The delay, in seconds, of a fragment that is held and does not run: longer than any that a contract allows."""


@dataclass(frozen=True, slots=True)
class Served:
    """Seconds that tuples took, None where nothing is known, and the share of them that was kept."""

    delay_seconds: float | None = None
    keep: float = 1.0


class ServiceWatch:
    """Notes by fragment; safe from several threads.

    >>> watch = ServiceWatch()
    >>> for second, keep in enumerate((1.0, 1.0, 0.5, 1.0)):
    ...     watch.note("f", float(second), Served(0.1, keep))
    >>> watch.over("f", 0.0, 2.0), watch.over("f", 2.0, 4.0)
    (Served(delay_seconds=0.1, keep=1.0), Served(delay_seconds=0.1, keep=0.75))
    """

    def __init__(self) -> None:
        self._notes: dict[str, deque[tuple[float, Served]]] = {}
        self._lock = threading.Lock()

    def note(self, fragment: str, at: float, served: Served) -> None:
        """How it was served at a time."""
        with self._lock:
            self._notes.setdefault(fragment, deque(maxlen=SAMPLES)).append((at, served))

    def over(self, fragment: str, start: float, end: float) -> Served:
        """How it was served from `start` to `end`: the median delay, the mean keep.

        A time without a note of its own was like the last one before: bills of the next in a chain come late.
        """
        with self._lock:
            notes = list(self._notes.get(fragment, ()))
        within = [served for at, served in notes if start <= at < end]
        if not within:
            within = [served for at, served in notes if at < start][-1:]
        delays = [served.delay_seconds for served in within if served.delay_seconds is not None]
        # The mean of many ones may miss 1 by a rounding, and below 1 there is a penalty.
        keep = 1.0 if all(served.keep == 1.0 for served in within) else fmean(served.keep for served in within)
        return Served(median(delays) if delays else None, keep)
