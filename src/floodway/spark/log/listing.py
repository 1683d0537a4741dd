"""Which tuples a partition holds, from file names alone, kept up to date incrementally.

A listing forms a chain of segments in order of their numbers. What is not part of it is counted, never read:
temporary leftovers of a killed writer, foreign files, torn segments, segments whose tuples another one holds already.
Whether a segment is torn is looked up once, when its tuples are asked for: a long log costs those who read its end no
more than its names.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from floodway.spark.log.segments import TEMPORARY, SegmentName, is_whole, parse_name
from floodway.spark.log.tag_index import INDEX

LOCK = "writer.lock"
_SETTLED_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Skipped:
    """Files in a partition's folder that were not taken as data."""

    leftovers: int = 0
    foreign: int = 0
    torn: int = 0
    overlapping: int = 0
    merged: int = 0

    def __add__(self, other: Skipped) -> Skipped:
        return Skipped(
            self.leftovers + other.leftovers,
            self.foreign + other.foreign,
            self.torn + other.torn,
            self.overlapping + other.overlapping,
            self.merged + other.merged,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """What can be read without a hole: from `first` up to `end`."""

    first: int
    end: int


class Listing:
    """The chain of one partition. `refresh` costs one scan of the folder, or one stat when nothing changed.

    The first and the last segment of the chain are whole, so `earliest` and `end` hold.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chain: list[SegmentName] = []
        self.merged: list[SegmentName] = []
        self._known: dict[str, SegmentName] = {}
        self._whole: set[SegmentName] = set()
        self._torn: set[SegmentName] = set()
        self._breaks: list[int] = []
        self._bases: list[int] = []
        self._leftovers = self._foreign = self._overlapping = 0
        self._stamp = -1

    @property
    def earliest(self) -> int:
        """The first tuple there is; 0 in an empty partition."""
        return self.chain[0].base if self.chain else 0

    @property
    def end(self) -> int:
        """The number that the next tuple appended will get."""
        return self.chain[-1].end if self.chain else 0

    @property
    def torn(self) -> int:
        """How many torn segments were met so far, those behind the end among them."""
        return len(self._torn)

    def skipped(self) -> Skipped:
        """What the last look did not take as data; looks at every segment there is."""
        self.check_all()
        return Skipped(self._leftovers, self._foreign, self.torn, self._overlapping, len(self.merged))

    def refresh(self) -> None:
        """Look for new and retired segments. Raises FileNotFoundError when the folder is gone."""
        stamp = self.folder.stat().st_mtime_ns
        if stamp == self._stamp:
            return
        names: set[str] = set()
        leftovers = foreign = 0
        new: list[SegmentName] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                name = entry.name
                if name in self._known:
                    names.add(name)
                    continue
                segment = parse_name(name)
                if segment is not None:
                    names.add(name)
                    new.append(segment)
                    self._known[name] = segment
                elif name.startswith(TEMPORARY):
                    leftovers += 1
                elif name not in (LOCK, INDEX):
                    foreign += 1
        self._leftovers, self._foreign = leftovers, foreign
        gone = {self._known.pop(name) for name in self._known.keys() - names}
        self._whole -= gone
        again, self._torn = self._torn - gone, set()  # somebody may have restored one
        if gone or again or (new and min(new).base < self.end):
            self._rebuild()
        else:
            self._extend(new)
        while self.chain and not (self.is_whole(self.chain[-1]) and self.is_whole(self.chain[0])):
            self._rebuild()
        # A folder's time stamp may be as coarse as a clock tick: trust it only once it lies well in the past.
        self._stamp = stamp if time.time_ns() - stamp > _SETTLED_NANOSECONDS else -1

    def is_whole(self, name: SegmentName) -> bool:
        """Whether a segment is not torn; one that has gone since the last look was whole then."""
        if name in self._whole:
            return True
        if name in self._torn:
            return False
        try:
            whole = is_whole(self.folder / str(name))
        except FileNotFoundError:
            return True
        (self._whole if whole else self._torn).add(name)
        return whole

    def check_all(self, start: int = 0) -> None:
        """Take every torn segment that ends after `start` out of the chain."""
        for name in self._known.values():
            if name.end > start:
                self.is_whole(name)
        if self._torn:
            self._rebuild()

    def span(self, start: int, until: int | None = None) -> Span:
        """The first tuple at or after `start` that exists, and how far one can read from it without a hole.

        With `until` that may be told too short, but only where it lies behind `until`.
        """
        while True:
            if start >= self.end:
                return Span(start, start) if start == self.end else Span(self.end, self.end)
            index = max(bisect_right(self._bases, start) - 1, 0)
            if self.chain[index].end <= start:
                index += 1
            hole = bisect_right(self._breaks, index)
            last = self._breaks[hole] if hole < len(self._breaks) else len(self.chain)
            if until is not None:
                last = min(last, max(bisect_right(self._bases, until - 1), index + 1))
            if all(self.is_whole(name) for name in self.chain[index:last]):
                return Span(max(start, self.chain[index].base), self.chain[last - 1].end)
            self._rebuild()

    def between(self, start: int, end: int) -> list[SegmentName]:
        """The segments that hold tuples of [start, end), in order."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        last = bisect_right(self._bases, end - 1)
        return [segment for segment in self.chain[first:last] if segment.end > start]

    def _rebuild(self) -> None:
        self.chain, self.merged, self._bases, self._breaks, self._overlapping = [], [], [], [], 0
        self._extend(name for name in self._known.values() if name not in self._torn)

    def _extend(self, segments: Iterable[SegmentName]) -> None:
        # Of two that start together the longer one comes first, so the other is seen to be covered.
        for segment in sorted(segments, key=lambda name: (name.base, -name.count)):
            if segment.base < self.end:
                if segment.end <= self.end and segment.base >= self.chain[-1].base:
                    self.merged.append(segment)
                else:
                    self._overlapping += 1
                continue
            if self.chain and segment.base > self.end:
                self._breaks.append(len(self.chain))
            self.chain.append(segment)
            self._bases.append(segment.base)
