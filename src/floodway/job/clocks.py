"""A clock for timers and latencies that survives steps of the machine's clock.

A wall clock may be set back or forward while a job runs; timers that are due at wall-clock times then wait for as long
as the step, or all fire at once, and every tuple seems to have waited for it. A monotonic clock does not step, but says
nothing of the stamps that tuples and batches carry. A `SteadyClock` is both:

    now = wall clock − sum of the steps seen so far        a step: wall and monotonic clock differ by more than 0.5 s
                                                           between two looks

Without steps it is the wall clock, slow drift included. `steady` takes a stamp of the wall clock to the same time line:
between two steps the clock has shown a range of times, and a stamp is from the latest range that holds it, or from the
nearest. After a step back two ranges overlap, and an older stamp may be taken for a newer one: by at most the length of
the step, and never the other way.

>>> wall, monotonic = iter([100.0, 101.0, 3702.0]), iter([5.0, 5.0, 6.0, 6.0, 7.0, 7.0])
>>> clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
>>> clock.now(), clock.now()
(101.0, 102.0)
>>> clock.shift_seconds
3600.0
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STEP_SECONDS = 0.5
AHEAD_SECONDS = 2.0
"""Clocks of other machines may be ahead of this one by so much without being taken for a time before a step back."""
_MOST_STEPS = 16
_PROMPT_SECONDS = 0.01
_TRIES = 5


class _Stretch(NamedTuple):
    """What the wall clock has shown between two steps, and the sum of the steps before."""

    first: float
    last: float
    shift_seconds: float


class SteadyClock:
    """Seconds since 1970 that never go back; safe to use from several threads.

    It sees a step at the first look after it: whoever keeps one looks several times a second, or loses the difference
    between stamps around the step.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall_clock = wall
        self._monotonic_clock = monotonic
        self._lock = threading.Lock()
        self._past: deque[_Stretch] = deque(maxlen=_MOST_STEPS)
        self.shift_seconds = 0.0
        """The sum of all steps so far."""
        self._wall, self._monotonic = self._read()
        self._first = -math.inf
        self._latest = self._wall

    def now(self) -> float:
        """The time now."""
        with self._lock:
            self._look()
            return self._latest

    def steady(self, seconds: float) -> float:
        """A stamp of the wall clock on this time line."""
        return float(self.steady_all(np.array([seconds]))[0])

    def steady_all(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Many stamps of the wall clock on this time line."""
        with self._lock:
            self._look()
            found = seconds - self.shift_seconds
            nearest = np.full(len(seconds), math.inf)
            for stretch in (_Stretch(self._first, self._wall, self.shift_seconds), *reversed(self._past)):
                away = np.maximum(stretch.first - seconds, seconds - (stretch.last + AHEAD_SECONDS)).clip(min=0.0)
                nearer = away < nearest
                found[nearer] = seconds[nearer] - stretch.shift_seconds
                nearest[nearer] = away[nearer]
            return found

    def lowest(self, seconds: float) -> float:
        """A stamp of the wall clock below which nothing is that came in the last `seconds`, whatever was set since."""
        with self._lock:
            self._look()
            then = self._wall - self.shift_seconds - seconds
            lowest = math.inf
            for stretch in (_Stretch(self._first, self._wall, self.shift_seconds), *reversed(self._past)):
                lowest = min(lowest, max(stretch.first, then + stretch.shift_seconds))
                if then + stretch.shift_seconds >= stretch.first:
                    break
            return lowest

    def _look(self) -> None:
        wall, monotonic = self._read()
        passed = max(0.0, monotonic - self._monotonic)
        expected = self._wall + passed
        if abs(wall - expected) > STEP_SECONDS:
            self._past.append(_Stretch(self._first, expected, self.shift_seconds))
            self.shift_seconds += wall - expected
            self._first = wall - passed  # the step may have come right after the last look
        self._wall, self._monotonic = wall, monotonic
        self._latest = max(self._latest, wall - self.shift_seconds)

    def _read(self) -> tuple[float, float]:
        """Both clocks at one moment: a process that is held up between two reads must not see a step in that."""
        for _ in range(_TRIES):
            before = self._monotonic_clock()
            wall = self._wall_clock()
            monotonic = self._monotonic_clock()
            if monotonic - before <= _PROMPT_SECONDS:
                break
        return wall, monotonic


PROCESS_CLOCK = SteadyClock()
"""The clock of this process."""
