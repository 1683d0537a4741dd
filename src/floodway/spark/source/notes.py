"""Notes that tasks leave for the driver: what a read found that the batch's journal cannot know.

A note is an empty file `KIND/STREAM.PARTITION.START.END`, beside the decision file unless the option `notes` names a
folder; driver and executors share it. The same note twice is one: a batch that is repeated says the same.

Tuples may be deleted after their batch was cut and before it was read: retention does not wait for a batch under way.
With onLoss=skip its tasks pass over what has gone meanwhile and leave a note for each hole. The ledger's line for
`retention` counts, from the notes, those of them that the journaled decision had admitted; so does an audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from floodway.job.store.store import make_folder
from floodway.spark.log import PositionError
from floodway.spark.source.backend import Piece, Readable
from floodway.spark.source.offsets import BatchOffset

LOST = "lost"
"""Tuples that were deleted before they could be read."""

MALFORMED = "malformed"
"""A range with records that could not be decoded."""

Told = Callable[[int, int, int], None]
"""Called with the partition, start and end of a hole."""


class Note(NamedTuple):
    """One note: the range [start, end) of a partition, and its file."""

    partition: int
    start: int
    end: int
    path: Path


def leave(folder: Path, stream: str, partition: int, start: int, end: int) -> None:
    """Leave a note."""
    make_folder(folder)
    (folder / f"{quote(stream, safe='')}.{partition}.{start}.{end}").touch()


def left(folder: Path, stream: str) -> Iterator[Note]:
    """The notes of one stream."""
    for path in folder.iterdir() if folder.is_dir() else ():
        name, *numbers = path.name.rsplit(".", 3)
        if name == quote(stream, safe="") and len(numbers) == 3 and all(number.isdecimal() for number in numbers):
            partition, start, end = map(int, numbers)
            yield Note(partition, start, end, path)


class PassingOver:
    """A backend's tuples without those that have gone: reading goes on behind a hole, after telling of it."""

    def __init__(self, backend: Readable, told: Told) -> None:
        self._backend = backend
        self._told = told

    def read(self, partition: int, runs: Sequence[tuple[int, int]]) -> Iterator[Piece]:
        """What is there of the ranges [start, end), in order."""
        at = 0
        try:
            for sequence, batch in self._backend.read(partition, runs):
                yield sequence, batch
                at = int(sequence[-1]) + 1
        except PositionError as error:
            if error.lost <= 0:  # beyond the end: another log than the one the batch was cut from
                raise
            hole, first = error.first - error.lost, error.first
        else:
            return
        # A hole may be told before what lies in front of it is read.
        yield from self.read(partition, within(runs, at, hole))
        for start, end in within(runs, max(at, hole), first):
            self._told(partition, start, end)
        yield from self.read(partition, within(runs, first, None))


def within(runs: Sequence[tuple[int, int]], first: int, end: int | None) -> list[tuple[int, int]]:
    """What of the runs lies in [first, end), up to their own end if that is None.

    >>> within([(0, 5), (8, 12), (20, 30)], 3, 10)
    [(3, 5), (8, 10)]
    """
    cut = [(max(start, first), stop if end is None else min(stop, end)) for start, stop in runs]
    return [(start, stop) for start, stop in cut if start < stop]


def count_gone(folder: Path, offset: BatchOffset | None) -> int:
    """How many of the tuples that a batch admitted were gone when they were read, from the notes."""
    if offset is None:
        return 0
    rule, total = offset.admission, 0
    holes = _holes(folder, offset.stream)
    for part in offset.parts():
        if part.zone == "read":
            reach = part.start
            for start, end in holes.get(part.partition, ()):
                # Two attempts may have found holes that overlap: each tuple counts once.
                start, end = max(start, reach), min(end, part.end)
                if start < end:
                    total += rule.count(part.partition, start, end)
                    reach = end
    return total


def forget_gone(folder: Path, oldest: Mapping[str, BatchOffset]) -> None:
    """Remove the notes that no audit asks for any more: of tuples before the oldest batches that Spark still has."""
    for stream, offset in oldest.items():
        for note in left(folder, stream):
            if note.end <= offset.start.get(note.partition, 0):
                note.path.unlink(missing_ok=True)


def _holes(folder: Path, stream: str) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for note in left(folder, stream):
        found.setdefault(note.partition, []).append((note.start, note.end))
    return {partition: sorted(holes) for partition, holes in found.items()}
