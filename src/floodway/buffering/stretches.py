"""A queue's tuples on the clock: stretches of evenly spaced times, made from a few samples.

A queue may hold millions of tuples whose times lie in a log. A few samples of them, and straight lines in between,
are enough to tell how many are older than a given age, in time that does not depend on how many wait.

>>> parts = sampled(101, (0.0, 1.0, 9.0))
>>> [(part.count, part.first) for part in parts], count_before(parts, 1.0)
([(50, 0.0), (51, 1.0)], 50)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` tuples at the times first, first + gap, first + 2 gap, ... (seconds)."""

    count: int
    first: float
    gap: float

    def before(self, cutoff: float) -> int:
        """How many of its tuples have a time below `cutoff`."""
        if self.first >= cutoff:
            return 0
        if self.gap <= 0.0 or self.first + self.gap * (self.count - 1) < cutoff:
            return self.count
        return min(self.count, math.ceil((cutoff - self.first) / self.gap))


def sampled(count: int, times: Sequence[float]) -> tuple[Stretch, ...]:
    """`count` tuples whose times were sampled at evenly spread places, the first and the last included.

    Times that go back (clocks of different writers, a clock that was set) count as standing still, so that the order
    of a queue stays that of its positions.
    """
    if count == 0:
        return ()
    steady = list(accumulate(times, max))
    if len(steady) == 1 or count == 1:
        return (Stretch(count, steady[0], 0.0),)
    if count < len(steady):
        places = [place * (len(steady) - 1) // (count - 1) for place in range(count)]
        return tuple(Stretch(1, steady[place], 0.0) for place in places)
    pieces = len(steady) - 1
    edges = [piece * (count - 1) // pieces for piece in range(pieces + 1)]
    parts = [
        Stretch(edges[i + 1] - edges[i], steady[i], (steady[i + 1] - steady[i]) / (edges[i + 1] - edges[i]))
        for i in range(pieces)
    ]
    last = parts[-1]
    # The last sample is a tuple too: the others end just before the next sample.
    return (*parts[:-1], Stretch(last.count + 1, last.first, last.gap))


def count_before(stretches: Sequence[Stretch], cutoff: float) -> int:
    """How many tuples at the front have a time below `cutoff`."""
    total = 0
    for part in stretches:
        found = part.before(cutoff)
        total += found
        if found < part.count:
            break
    return total


def without_first(stretches: Sequence[Stretch], skip: int) -> list[Stretch]:
    """What is left behind the first `skip` tuples."""
    rest: list[Stretch] = []
    for part in stretches:
        gone = min(skip, part.count)
        skip -= gone
        if gone < part.count:
            rest.append(Stretch(part.count - gone, part.first + gone * part.gap, part.gap))
    return rest
