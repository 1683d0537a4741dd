"""The keeps of windows over event time, for a source whose micro-batches are cut one after the other.

A source journals its history of keeps in the offset of every batch. A change of plan begins at the first batch of
windows that starts later than every event time of the batches cut before: no tuple of these windows was judged yet, so
a window has one keep from its first tuple to its last, whatever happens to the plan, and its fate (`window_drop.py`) is
a pure function of its start and of the journal.

Drops side by side have one salt: what is kept at a keep is kept at any higher one, so where two streams are merged, the
windows whole in both are those of the lower keep. Drops in a row have salts of their own: each takes its share of what
the one before left.

A share p of windows that is kept needs a larger share f of the tuples, because kept windows overlap dropped ones.
With r = (ω − δ)/L = m + h (whole part and fraction), a share h of the tuples lies in m + 2 batches of windows, the rest
in m + 1:

    f(p) = 1 − (1 − h)(1 − p)^(m+1) − h(1 − p)^(m+2)

A plan speaks of tuples, because they are what costs CPU: `window_ppm` finds p for a planned f.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from floodway.planning.windows.window_drop import WindowShape, slot_ppm
from floodway.units import PPM

FIRST_US = -(1 << 62)
"""Before all event times."""

CHANGE = 0.05
"""Relative change of keep that is worth an entry: the drop changes that the papers' prototype ignored."""

MOST_ENTRIES = 1024
"""Entries that are journaled; windows before the oldest count as dropped, so that none is emitted in part."""

_NUMBERS = 5


def passed_share(shape: WindowShape, window_share: float) -> float:
    """f(p): the share of tuples inside kept windows, where a share p of the windows is kept.

    >>> passed_share(WindowShape(10, 5), 0.5), passed_share(WindowShape(10, 10), 0.5)
    (0.75, 0.5)
    """
    whole, part = divmod((shape.size_us - shape.slide_us) / shape.batch_us, 1.0)
    dropped = (1.0 - window_share) ** int(whole + 1)
    return float(1.0 - (1.0 - part) * dropped - part * dropped * (1.0 - window_share))


def window_ppm(shape: WindowShape, tuple_ppm: int) -> int:
    """The keep of windows, in ppm, at which no more than `tuple_ppm` of the tuples pass in the long run.

    >>> window_ppm(WindowShape(10, 5), 750_000), window_ppm(WindowShape(10, 10), 750_000)
    (500000, 750000)
    """
    if tuple_ppm >= PPM:
        return PPM
    low, high = 0, PPM
    while high - low > 1:
        middle = (low + high) // 2
        # Half a millionth of room: rounding must not cost a share that can be had exactly.
        if passed_share(shape, middle / PPM) * PPM <= tuple_ppm + 0.5:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class WindowKeeps:
    """Entries (batch start in microseconds, keep in ppm), the latest that has begun is in force for a batch start.

    >>> keeps = WindowKeeps(WindowShape(10, 5)).changed(400_000, seen_us=23)
    >>> keeps.keep_ppm(20), keeps.keep_ppm(25)
    (1000000, 400000)
    >>> keeps.changed(900_000, seen_us=23).history, keeps.changed(410_000, seen_us=99) is keeps
    (((-4611686018427387904, 1000000), (25, 900000)), True)
    """

    shape: WindowShape
    salt: int = 0
    history: tuple[tuple[int, int], ...] = ((FIRST_US, PPM),)

    def keep_ppm(self, start_us: int) -> int:
        """The keep in force for the batch that starts there; 0 before the oldest entry."""
        for begun, keep_ppm in reversed(self.history):
            if begun <= start_us:
                return keep_ppm
        return 0

    def changed(self, keep_ppm: int, *, seen_us: int) -> WindowKeeps:
        """From the first batch of windows on that holds no tuple up to `seen_us` (FIRST_US: nothing was seen yet)."""
        latest = self.history[-1][1]
        if keep_ppm == latest or (0 < keep_ppm < PPM and abs(keep_ppm - latest) <= CHANGE * latest):
            return self
        start = FIRST_US if seen_us <= FIRST_US else self.shape.next_start(seen_us)
        # An entry that begins there too was for windows of which nothing has come: it is replaced.
        before = [entry for entry in self.history if entry[0] < start]
        if not before or before[-1][1] != keep_ppm:
            before.append((start, keep_ppm))
        return replace(self, history=tuple(before[-MOST_ENTRIES:]))

    def passes(self, event_us: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which tuples lie in a window of a kept batch, by their event times."""
        shape = self.shape
        latest = event_us - (event_us - shape.offset_us) % shape.batch_us
        reach = shape.batch_us - shape.slide_us + shape.size_us
        starts, place = np.unique(latest, return_inverse=True)
        passed = np.zeros(len(event_us), dtype=np.bool_)
        fates: dict[int, bool] = {}
        for back in range(shape.overlap):
            for start in (starts - back * shape.batch_us).tolist():
                if start not in fates:
                    fates[start] = slot_ppm(start, self.salt) < self.keep_ppm(start)
            kept = np.array([fates[start - back * shape.batch_us] for start in starts.tolist()], dtype=np.bool_)
            passed |= kept[place] & (event_us < latest - back * shape.batch_us + reach)
        return passed

    def numbers(self) -> tuple[int, ...]:
        """As whole numbers, for an offset: size, slide, start offset, batch, salt, then the entries."""
        shape = self.shape
        numbers = [shape.size_us, shape.slide_us, shape.offset_us, shape.batch, self.salt]
        return (*numbers, *(number for entry in self.history for number in entry))


def from_numbers(numbers: Sequence[int]) -> WindowKeeps:
    """What `WindowKeeps.numbers` gave; raises ValueError on anything else."""
    entries = numbers[_NUMBERS:]
    if not entries or len(entries) % 2:
        raise ValueError(f"{list(numbers)} are no keeps of windows")
    size, slide, offset, batch, salt = numbers[:_NUMBERS]
    history = tuple(zip(entries[::2], entries[1::2], strict=True))
    return WindowKeeps(WindowShape(size, slide, offset, batch), salt, history)


def pipelined(first: WindowShape, second: WindowShape) -> WindowShape:
    """The shape to drop by before two aggregates in a row: δ = δ2, ω = ω1 + ω2 − g, g = gcd(δ1, δ2, ω2).

    The first puts out its windows' starts, so the last that a window [S, S + ω2) of the second holds begins at
    S + ω2 − g at the latest. The paper's windows slide by one unit of time, where g = 1.

    >>> shape = pipelined(WindowShape(10, 1), WindowShape(6, 2))
    >>> shape.size_us, shape.slide_us
    (15, 2)
    """
    step = math.gcd(first.slide_us, second.slide_us, second.size_us)
    return WindowShape(first.size_us + second.size_us - step, second.slide_us)
