"""Which tuples a partition holds, from file names alone, kept up to date incrementally.

A listing forms a chain of segments in order of their numbers. What is not part of it is counted, never read:
temporary leftovers of a killed writer, foreign files, torn segments, segments whose tuples another one holds already.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from floodway.spark.log.segments import TEMPORARY, SegmentName, is_whole, parse_name

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
    """The chain of one partition. `refresh` costs one scan of the folder, or one stat when nothing changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chain: list[SegmentName] = []
        self.merged: list[SegmentName] = []
        self.skipped = Skipped()
        self._known: dict[str, SegmentName] = {}
        self._breaks: list[int] = []
        self._bases: list[int] = []
        self._overlapping = 0
        self._stamp = -1

    @property
    def earliest(self) -> int:
        """The first tuple there is; 0 in an empty partition."""
        return self.chain[0].base if self.chain else 0

    @property
    def end(self) -> int:
        """The number that the next tuple appended will get."""
        return self.chain[-1].end if self.chain else 0

    def refresh(self) -> None:
        """Look for new and retired segments. Raises FileNotFoundError when the folder is gone."""
        stamp = self.folder.stat().st_mtime_ns
        if stamp == self._stamp:
            return
        names: set[str] = set()
        leftovers = foreign = torn = 0
        new: list[SegmentName] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                name = entry.name
                if name in self._known:
                    names.add(name)
                    continue
                segment = parse_name(name)
                if segment is None:
                    if name.startswith(TEMPORARY):
                        leftovers += 1
                    elif name != LOCK:
                        foreign += 1
                elif is_whole(self.folder / name):
                    names.add(name)
                    new.append(segment)
                    self._known[name] = segment
                else:
                    torn += 1
        gone = self._known.keys() - names
        for name in gone:
            del self._known[name]
        if gone or (new and min(new).base < self.end):
            self._rebuild()
        else:
            self._extend(sorted(new))
        self.skipped = Skipped(leftovers, foreign, torn, self._overlapping, len(self.merged))
        # A folder's time stamp may be as coarse as a clock tick: trust it only once it lies well in the past.
        self._stamp = stamp if time.time_ns() - stamp > _SETTLED_NANOSECONDS else -1

    def span(self, start: int) -> Span:
        """The first tuple at or after `start` that exists, and how far one can read from it without a hole."""
        if start >= self.end:
            return Span(start, start) if start == self.end else Span(self.end, self.end)
        index = max(bisect_right(self._bases, start) - 1, 0)
        if self.chain[index].end <= start:
            index += 1
        hole = bisect_right(self._breaks, index)
        last = self._breaks[hole] - 1 if hole < len(self._breaks) else len(self.chain) - 1
        return Span(max(start, self.chain[index].base), self.chain[last].end)

    def between(self, start: int, end: int) -> list[SegmentName]:
        """The segments that hold tuples of [start, end), in order."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        last = bisect_right(self._bases, end - 1)
        return [segment for segment in self.chain[first:last] if segment.end > start]

    def _rebuild(self) -> None:
        self.chain, self.merged, self._bases, self._breaks, self._overlapping = [], [], [], [], 0
        # Of two that start together the longer one comes first, so the other is seen to be covered.
        self._extend(sorted(self._known.values(), key=lambda name: (name.base, -name.count)))

    def _extend(self, segments: Iterable[SegmentName]) -> None:
        for segment in segments:
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
