"""When the tuples of a log came, from marks: (position, seconds) pairs noted as the log grows.

Reading the arrival time of one tuple is cheap, of all tuples it is not. One mark a tick, taken at the newest tuple,
tells the arrival of every other one to within a tick.

>>> marks = ArrivalMarks()
>>> marks.note(0, 10.0); marks.note(100, 11.0)
>>> marks.times([0, 50, 100])
[10.0, 10.5, 11.0]
>>> round(marks.rate(11.0, window_seconds=2.0))
100
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

MOST_MARKS = 4096


class ArrivalMarks:
    """Marks of one partition; positions grow, and a mark at or below the last position is ignored."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._seconds: list[float] = []

    @property
    def newest(self) -> int | None:
        """The last position that is marked."""
        return self._positions[-1] if self._positions else None

    def note(self, position: int, seconds: float) -> None:
        """The tuple at `position` came at `seconds`."""
        if self._positions and position <= self._positions[-1]:
            return
        self._positions.append(position)
        self._seconds.append(seconds)
        if len(self._positions) > MOST_MARKS:
            # Every second one goes, the newest stays: coarser, and bounded however long a queue waits.
            self._positions = self._positions[::-2][::-1]
            self._seconds = self._seconds[::-2][::-1]

    def forget_before(self, position: int) -> None:
        """What lies before `position` was served: one mark before it is enough."""
        place = max(0, bisect_left(self._positions, position + 1) - 1)
        del self._positions[:place], self._seconds[:place]

    def times(self, positions: Sequence[int]) -> list[float]:
        """Arrival times (seconds) at these positions; beyond the marks that of the nearest one."""
        if not self._positions:
            return []
        return [float(time) for time in np.interp(positions, self._positions, self._seconds)]

    def rate(self, now: float, *, window_seconds: float) -> float:
        """Tuples/s that came in the last `window_seconds`, over what the marks cover of them."""
        recent = [i for i, seconds in enumerate(self._seconds) if seconds >= now - window_seconds]
        if not recent:
            return 0.0
        first = max(0, recent[0] - 1)
        span = max(self._seconds[-1], now) - self._seconds[first]
        return (self._positions[-1] - self._positions[first]) / span if span > 0 else 0.0
