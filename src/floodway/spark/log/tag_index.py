"""Where the tags of merged segments are, so that a writer need not open what it has merged to know a tag.

The name of a segment holds the hash of its tag; a merged segment has too many. `tags.index` holds 16 bytes a tag: the
hash, the position of its first tuple, and in its 16 highest bits a checksum of both. It only says where to look: the
tag itself is read from the segment there.
Records are appended before the segments they stand for are merged, so that no kill in between can lose a tag; where the
file is missing, was cut or is damaged it is made anew from the segments, whose names say how many tags they hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodway.spark.log.segments import TEMPORARY, SegmentName, cannot_append, hash_tag, open_segment, sync_path

INDEX = "tags.index"
_RECORD = np.dtype([("tag_hash", "<u8"), ("position", "<u8")])
_POSITION_BITS = np.uint64(48)
_POSITION = np.uint64((1 << 48) - 1)
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
_LEAST_PRUNED = 4096
"""Fewer dead records than this are not worth writing the file again (64 kB)."""


def note_tags(folder: Path, names: Iterable[SegmentName], *, sync: bool) -> None:
    """Add the tags of segments that are about to be merged; those merged before are there already."""
    pairs = [(int(name.tag_hash, 16), name.base) for name in names if name.tags == 1]
    if pairs:
        _append(folder, _made(pairs), sync=sync)


def positions(folder: Path, tag: str) -> list[int]:
    """Where tuples under this tag may begin, newest first."""
    records = _records(folder)
    found = _sound(records[records["tag_hash"] == int(hash_tag(tag), 16)])
    return [int(position) for position in found["position"][::-1]]


def complete(folder: Path, chain: Iterable[SegmentName], schema: pa.Schema, *, sync: bool) -> None:
    """Make the index from the merged segments if it lacks some of their tags, or is damaged."""
    many = [name for name in chain if name.tags > 1]
    if many and not _covers(_records(folder), many):
        tags = [(tag, name.base) for name in many for tag in open_segment(folder / str(name), name, schema).tags]
        _replace(folder, _made([(int(hash_tag(tag), 16), at) for tag, at in tags]), sync=sync)


def _covers(records: npt.NDArray[np.void], merged: list[SegmentName]) -> bool:
    """Whether each merged segment has as many records as its name says that it has tags."""
    places = np.sort(np.unique(_sound(records))["position"])
    first, last = (np.searchsorted(places, [getattr(name, end) for name in merged]) for end in ("base", "end"))
    return bool((last - first >= [name.tags for name in merged]).all())


def prune(folder: Path, earliest: int, *, sync: bool) -> None:
    """Forget the tags of tuples before `earliest`, once they are more than half of all."""
    records = _records(folder)
    alive = (records["position"] & _POSITION) >= earliest
    dead = len(records) - int(alive.sum())
    if dead >= max(_LEAST_PRUNED, len(records) / 2):
        _replace(folder, np.array(records[alive]), sync=sync)


def _made(pairs: list[tuple[int, int]]) -> npt.NDArray[np.void]:
    """Records of hashes and positions, with their checksums."""
    records = np.array(pairs, dtype=_RECORD)
    records["position"] |= _checksum(records["tag_hash"], records["position"]) << _POSITION_BITS
    return records


def _sound(records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The records whose checksum is right, with their positions alone."""
    found = np.array(records)
    found["position"] &= _POSITION
    said = records["position"] >> _POSITION_BITS
    sound: npt.NDArray[np.void] = found[said == _checksum(found["tag_hash"], found["position"])]
    return sound


def _checksum(hashes: npt.NDArray[np.uint64], places: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """16 bits: a product modulo 2^64 carries every bit of both into its highest ones. Zeros are no record."""
    mixed = (hashes ^ ((places + np.uint64(1)) * _ODD)) * _ODD
    return (mixed ^ (mixed << np.uint64(32))) * _ODD >> _POSITION_BITS


def _records(folder: Path) -> npt.NDArray[np.void]:
    try:
        size = (folder / INDEX).stat().st_size // _RECORD.itemsize
    except FileNotFoundError:
        size = 0
    # A record half written by a killed writer is left out; what it stood for was not merged yet.
    return np.memmap(folder / INDEX, dtype=_RECORD, mode="r", shape=(size,)) if size else np.empty(0, _RECORD)


def _append(folder: Path, records: npt.NDArray[np.void], *, sync: bool) -> None:
    descriptor = os.open(folder / INDEX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        size -= size % _RECORD.itemsize
        data = records.tobytes()
        if os.pwrite(descriptor, data, size) < len(data):
            raise OSError(f"{folder / INDEX} took a part only")
        if sync:
            os.fsync(descriptor)
    except OSError as error:
        raise cannot_append(folder, error) from error
    finally:
        os.close(descriptor)
    if sync:
        sync_path(folder)


def _replace(folder: Path, records: npt.NDArray[np.void], *, sync: bool) -> None:
    temporary = folder / f"{TEMPORARY}{INDEX}"
    try:
        temporary.write_bytes(records.tobytes())
        if sync:
            sync_path(temporary)
        temporary.rename(folder / INDEX)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_append(folder, error) from error
    if sync:
        sync_path(folder)
