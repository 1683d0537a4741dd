"""Serve several sorted queues in key order until a CPU budget is spent, without touching single tuples.

A queue is a *line*: `count` tuples whose keys run `first`, `first + gap`, ... Serving all tuples with a key of at
most x takes clip(floor((x - first) / gap) + 1, 0, count) tuples from each line, which grows with x; so the x at which
the budget is spent is found by bisection, in time that does not depend on how many tuples wait. The first tuple that
does not fit ends the batch: nothing overtakes it.

>>> lines = [Line(0, 0.0, 1.0, 10, cost_seconds=0.5), Line(0, 0.25, 1.0, 10, cost_seconds=0.5)]
>>> take_in_order(lines, 2.0)
[2, 2]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BISECTIONS = 64


@dataclass(frozen=True, slots=True)
class Line:
    """`count` waiting tuples in key order; levels are strict, `tie` orders lines whose next keys are equal."""

    level: int
    first: float
    gap: float
    count: int
    cost_seconds: float
    tie: int = 0

    def up_to(self, key: float) -> int:
        """How many of the line's tuples have a key of at most `key`."""
        if key < self.first:
            return 0
        if self.gap <= 0.0 or key >= self.key(self.count - 1):
            return self.count
        return min(self.count, math.floor((key - self.first) / self.gap) + 1)

    def key(self, place: int) -> float:
        """The key of the tuple at `place`, counted from 0."""
        return self.first + place * self.gap


def take_in_order(lines: Sequence[Line], budget_seconds: float) -> list[int]:
    """How many tuples of each line to serve, in key order, for at most `budget_seconds` of CPU."""
    taken = [0] * len(lines)
    left = budget_seconds
    for level in sorted({line.level for line in lines if line.count}):
        members = [place for place, line in enumerate(lines) if line.level == level and line.count]
        left = _serve_level(lines, members, left, taken)
        if any(taken[place] < lines[place].count for place in members):
            break
    return taken


def _serve_level(lines: Sequence[Line], members: list[int], budget: float, taken: list[int]) -> float:
    def price(key: float) -> float:
        return sum(lines[i].up_to(key) * lines[i].cost_seconds for i in members)

    high = max(lines[i].key(lines[i].count - 1) for i in members)
    if price(high) > budget:
        low = math.nextafter(min(lines[i].first for i in members), -math.inf)
        for _ in range(BISECTIONS):
            middle = low + (high - low) / 2
            low, high = (middle, high) if price(middle) <= budget else (low, middle)
        high = low
    left = budget
    for i in members:
        taken[i] = lines[i].up_to(high)
        left -= taken[i] * lines[i].cost_seconds
    return _fill(lines, members, left, taken)


def _fill(lines: Sequence[Line], members: list[int], left: float, taken: list[int]) -> float:
    """Go on one tuple at a time (equal keys of one line at once) until the next does not fit."""
    while True:
        open_lines = [i for i in members if taken[i] < lines[i].count]
        if not open_lines:
            return left
        i = min(open_lines, key=lambda place: (lines[place].key(taken[place]), lines[place].tie, place))
        cost = lines[i].cost_seconds
        if cost > left:
            return left
        rest = lines[i].count - taken[i]
        together = rest if lines[i].gap <= 0.0 else 1
        step = together if cost == 0.0 else min(together, max(1, math.floor(left / cost)))
        taken[i] += step
        left = max(0.0, left - step * cost)
