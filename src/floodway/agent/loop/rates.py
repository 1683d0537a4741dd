"""Arrival rates from cumulative counts: what came in during the last window, over the time it took."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


class RateMeter:
    """Rates of several streams over a sliding window (seconds); the clock is the caller's.

    >>> meter = RateMeter(window_seconds=1.0)
    >>> for second, total in enumerate((0, 100, 300)):
    ...     meter.sample(float(second), {"s1": total})
    >>> meter.rates()
    {'s1': 200.0}
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._samples: deque[tuple[float, dict[str, int]]] = deque()

    def sample(self, time_seconds: float, totals: Mapping[str, int]) -> None:
        """Note how many tuples had arrived in all; a clock that jumps back starts the window anew."""
        if self._samples and time_seconds <= self._samples[-1][0]:
            self._samples.clear()
        self._samples.append((time_seconds, dict(totals)))
        while len(self._samples) > 2 and time_seconds - self._samples[1][0] >= self._window:
            self._samples.popleft()

    def rates(self) -> dict[str, float]:
        """Tuples/s of each stream, 0 before the second sample."""
        if len(self._samples) < 2:
            return {name: 0.0 for _, totals in self._samples for name in totals}
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return {name: max(0, after[name] - before.get(name, 0)) / (end - begin) for name in after}
