"""Notes that tasks leave for the driver: what a read found that the batch's journal cannot know.

A note is an empty file `KIND/STREAM.PARTITION.START.END`, beside the decision file unless the option `notes` names a
folder; driver and executors share it. The same note twice is one: a batch that is repeated says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from floodway.job.store.store import make_folder

LOST = "lost"
"""Tuples that were deleted before they could be read."""

MALFORMED = "malformed"
"""A range with records that could not be decoded."""


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
