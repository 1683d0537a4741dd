"""A queue as a stretch of a log: a head position and, up to the tail, ranges with the keep rate each was given.

This is what a Spark offset carries: whole numbers only, bounded in size, and enough to read the same tuples again on
a replay. Nothing is moved when tuples wait; serving and purging advance the head, shedding lowers the keep rate of a
range.

>>> cursor = Cursor(head=0).extend(1000, keep_ppm=500_000)
>>> cursor.waiting
500
>>> ranges, rest = cursor.advance(100)
>>> ranges, rest.head, rest.waiting
((Range(start=0, end=200, keep_ppm=500000),), 200, 400)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from floodway.errors import InputError
from floodway.units import PPM

MOST_RANGES = 16
"""Beyond this, the two neighbouring ranges whose keep rates differ least become one, so that offsets stay small."""


class Range(NamedTuple):
    """Positions start <= p < end of the log, of which `keep_ppm` parts per million are kept."""

    start: int
    end: int
    keep_ppm: int

    @property
    def kept(self) -> int:
        """Tuples the range holds after its drops, as expected of a uniform hash."""
        return (self.end - self.start) * self.keep_ppm // PPM


@dataclass(frozen=True, slots=True)
class Cursor:
    """One queue over one log; `ranges` adjoin each other from the head to the tail."""

    head: int
    ranges: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        place = self.head
        for part in self.ranges:
            if part.start != place or part.end < part.start or not 0 <= part.keep_ppm <= PPM:
                raise InputError(
                    f"cursor at {self.head}: {part} does not continue from {place}",
                    hint="Ranges adjoin each other and keep between 0 and 1000000 ppm",
                )
            place = part.end

    @property
    def tail(self) -> int:
        """The position after the last one that was judged."""
        return self.ranges[-1].end if self.ranges else self.head

    @property
    def waiting(self) -> int:
        """Tuples that wait, after drops."""
        return sum(part.kept for part in self.ranges)

    def position(self, place: int) -> int:
        """Where the tuple stands that is number `place` (from 0) of those that wait, dropped ones not counted.

        >>> Cursor(0).extend(1000, keep_ppm=500_000).position(100)
        200
        """
        for part in self.ranges:
            if place < part.kept:
                return part.start + place * PPM // part.keep_ppm
            place -= part.kept
        return self.tail

    def extend(self, tail: int, *, keep_ppm: int = PPM) -> Cursor:
        """Take in what was appended up to `tail`, at this keep rate. A tail that went back is refused."""
        if tail < self.tail:
            raise InputError(
                f"the log ends at {tail}, before position {self.tail} that was read already",
                hint="The log was truncated or replaced: start the queue afresh at its new beginning",
            )
        if tail == self.tail:
            return self
        return Cursor(self.head, _merge((*self.ranges, Range(self.tail, tail, keep_ppm))))

    def advance(self, kept: int) -> tuple[tuple[Range, ...], Cursor]:
        """Move the head past `kept` tuples, dropped ones between them included: (what was passed, the rest)."""
        if not 0 <= kept <= self.waiting:
            raise InputError(
                f"cannot advance {kept} tuples where {self.waiting} wait", hint="Advance by at most `waiting`"
            )
        passed: list[Range] = []
        rest = list(self.ranges)
        # A range that keeps nothing is passed for free, or an all-dropped head would never move on.
        while rest and (kept > 0 or rest[0].kept == 0):
            part = rest.pop(0)
            if part.kept <= kept:
                passed.append(part)
                kept -= part.kept
                continue
            cut = part.start - (-kept * PPM // part.keep_ppm)
            passed.append(Range(part.start, cut, part.keep_ppm))
            rest.insert(0, Range(cut, part.end, part.keep_ppm))
            kept = 0
        head = passed[-1].end if passed else self.head
        return tuple(passed), Cursor(head, tuple(rest))

    def thin(self, keep_ppm: int) -> Cursor:
        """Keep only this share of everything that waits (random drop)."""
        return Cursor(self.head, tuple(part._replace(keep_ppm=part.keep_ppm * keep_ppm // PPM) for part in self.ranges))

    def to_offset(self) -> list[int]:
        """As flat whole numbers: head, then end and keep_ppm of every range."""
        return [self.head, *(number for part in self.ranges for number in (part.end, part.keep_ppm))]

    @classmethod
    def from_offset(cls, numbers: Sequence[int]) -> Cursor:
        """The cursor that `to_offset` wrote."""
        if not numbers or len(numbers) % 2 == 0:
            raise InputError(f"{list(numbers)} is not a cursor", hint="Write head, then end and keep_ppm pairs")
        head, ranges = numbers[0], list[Range]()
        start = head
        for end, keep_ppm in zip(numbers[1::2], numbers[2::2], strict=True):
            ranges.append(Range(start, end, keep_ppm))
            start = end
        return cls(head, tuple(ranges))


class Passage(NamedTuple):
    """A queue's next batch in absolute positions of its log.

    From the head of `cursor` up to `cleaned` tuples are late, from there up to `read_from` dropped at the front, from
    there up to `end` they enter the batch; behind `end` they wait. `cursor` holds the keep rates of all of them.
    """

    cleaned: int
    read_from: int
    end: int
    cursor: Cursor


def _merge(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    merged = list(ranges)
    while len(merged) > 1:
        gaps = [abs(a.keep_ppm - b.keep_ppm) for a, b in pairwise(merged)]
        least = min(gaps)
        if least > 0 and len(merged) <= MOST_RANGES:
            break
        place = gaps.index(least)
        first, second = merged[place : place + 2]
        size = second.end - first.start
        weight = (first.end - first.start) * first.keep_ppm + (second.end - second.start) * second.keep_ppm
        merged[place : place + 2] = [Range(first.start, second.end, weight // size)]
    return tuple(merged)
