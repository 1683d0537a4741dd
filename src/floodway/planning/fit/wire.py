"""A table on the wire: versioned, checksummed, a few bytes a number.

Numbers are sent as whole multiples of a unit per column, each as the difference to the row before, in as few bytes as
it takes (7 bits a byte, zigzag). The rates of a grid are not sent at all, only its axes; the paper's rows take 22·m +
8 bytes. Rounding is on the safe side: rates up, scores down, so that a node never promises more than it can do.

    magic "FT", version, kind | header length, header (JSON) | numbers | CRC-32

What changed between two tables, so that a node need not send all of its table again (long paper, 8.2.5).

Rows are told apart by their rates. A row stays unsent if the receiver's old score for the same rates is within a
tolerance of the new one; rows that are gone are simply not named.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.json_text import load_json
from floodway.planning.fit.node import NodeTable
from floodway.planning.program import Matrix, Vector

DELTA = 2


@dataclass(frozen=True)
class TableDelta:
    """`known[i]` is the old row to keep as new row i, or -1 where the next of `fresh` goes."""

    known: Integers
    fresh: NodeTable
    axes: tuple[Vector, ...] | None

    @property
    def share(self) -> float:
        """Part of the new table's rows that has to travel."""
        return len(self.fresh) / max(len(self.known), 1)


def table_delta(old: NodeTable, new: NodeTable, tolerance: float = 0.0) -> TableDelta:
    """The rows of `new` that `old` does not tell within `tolerance` (a part of the row's score)."""
    known = same_rows(old.rates, new.rates)
    before = np.where(known >= 0, old.scores[known] if len(old) else 0.0, np.inf)
    off = np.abs(before - new.scores) > tolerance * new.scores + 1e-12 * new.scores.max(initial=0.0)
    known[off] = -1
    fresh = known < 0
    return TableDelta(known, NodeTable(new.inputs, new.rates[fresh], new.scores[fresh]), new.axes)


def apply_delta(old: NodeTable, delta: TableDelta) -> NodeTable:
    """The receiver's new table."""
    if np.any(delta.known >= len(old)):
        raise WireError("a change refers to rows this node does not have", hint="Ask for the whole table")
    fresh = delta.known < 0
    rates = np.empty((len(delta.known), len(delta.fresh.inputs)))
    scores = np.empty(len(delta.known))
    rates[fresh], scores[fresh] = delta.fresh.rates, delta.fresh.scores
    rates[~fresh], scores[~fresh] = old.rates[delta.known[~fresh]], old.scores[delta.known[~fresh]]
    if delta.axes is not None:
        grid = grid_rates(delta.axes, delta.fresh.inputs, len(scores))
        if grid is None:
            raise WireError("a change does not fit together", hint="Ask for the whole table")
        rates = grid
    return NodeTable(delta.fresh.inputs, rates, scores, delta.axes)


def encode_delta(delta: TableDelta) -> bytes:
    """The bytes of a change; rows kept in order cost one byte each or less than the table's."""
    header, columns = table_columns(delta.fresh)
    header["known"] = len(delta.known)
    header["grid"] = None if delta.axes is None else [axis.tolist() for axis in delta.axes]
    # Runs of kept rows have a constant difference to their place, which packs into one byte a row.
    offset = np.where(delta.known < 0, 0, delta.known - np.arange(len(delta.known)) + 1)
    kept = (delta.known >= 0).astype(np.int64)
    return frame(DELTA, header, [kept, offset, *columns])


def decode_delta(message: bytes) -> TableDelta:
    """The change in a message; anything else is refused."""
    header, numbers = unframe(DELTA, message)
    size, grid = _sizes(header)
    if size < 0 or len(numbers) < 2 * size:
        raise WireError("a change is shorter than it says", hint="Ask for the whole table")
    kept = np.cumsum(numbers[:size])
    known = np.where(kept > 0, np.cumsum(numbers[size : 2 * size]) + np.arange(size) - 1, -1)
    fresh = table_from(header, numbers[2 * size :])
    if int((known < 0).sum()) != len(fresh):
        raise WireError("a change does not fit together", hint="Ask for the whole table")
    return TableDelta(known, fresh, grid)


def same_rows(old: Matrix, new: Matrix) -> Integers:
    """For every new row the old row with the same rates (to ten digits of the column's largest), or -1."""
    if not len(old) or old.shape[1] != new.shape[1]:
        return np.full(len(new), -1, dtype=np.int64)
    scale = np.maximum(np.abs(old).max(axis=0), 1e-300) * 1e-10
    both = np.round(np.vstack([old, new]) / scale).astype(np.int64)
    _, group = np.unique(both, axis=0, return_inverse=True)
    group = group.ravel()
    first = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    first[group[: len(old)][::-1]] = np.arange(len(old))[::-1]
    return first[group[len(old) :]]


def _sizes(header: dict[str, Any]) -> tuple[int, tuple[Vector, ...] | None]:
    try:
        grid = header["grid"]
        axes = None if grid is None else tuple(np.array(axis, dtype=np.float64) for axis in grid)
        return int(header["known"]), axes
    except (ValueError, KeyError, TypeError) as error:
        raise WireError("a change's header cannot be read", hint="Ask for the whole table") from error


MAGIC = b"FT"
VERSION = 1
MAX_BYTES = 64 * 2**20
TABLE = 1
_PREFIX = struct.Struct("<2sBBI")
_CRC = struct.Struct("<I")
_PARTS = 2**24
"""A column is sent in parts of its largest number: seven digits in at most four bytes."""
_AGAIN = "Ask the child node for its table again"

Integers = NDArray[np.int64]


class WireError(InputError):
    """A message that is not a table, is damaged, or is of a version this side does not speak."""


def encode_table(table: NodeTable) -> bytes:
    """The bytes of a table."""
    header, columns = table_columns(table)
    return frame(TABLE, header, columns)


def decode_table(message: bytes) -> NodeTable:
    """The table in a message; anything else is refused."""
    header, numbers = unframe(TABLE, message)
    return table_from(header, numbers)


def table_columns(table: NodeTable) -> tuple[dict[str, Any], list[Integers]]:
    """A table as a header and columns of whole numbers."""
    units = []
    columns = []
    for rates in table.rates.T if table.axes is None else ():
        units.append(_unit(rates))
        columns.append(np.ceil(rates / units[-1] - 1e-9).astype(np.int64))
    units.append(_unit(table.scores))
    columns.append(np.floor(table.scores / units[-1] + 1e-9).astype(np.int64))
    axes = None if table.axes is None else [axis.tolist() for axis in table.axes]
    return {"inputs": list(table.inputs), "rows": len(table), "units": units, "axes": axes}, columns


def table_from(header: Mapping[str, Any], numbers: Integers) -> NodeTable:
    """The table of a header and its numbers."""
    try:
        inputs = tuple(str(name) for name in header["inputs"])
        rows, units = int(header["rows"]), np.array(header["units"], dtype=np.float64)
        axes = None if header["axes"] is None else tuple(np.array(a, dtype=np.float64) for a in header["axes"])
    except (ValueError, KeyError, TypeError) as error:
        raise WireError("a table's header cannot be read", hint=_AGAIN) from error
    columns = 1 if axes is not None else len(inputs) + 1
    grid = None if axes is None else grid_rates(axes, inputs, rows)
    sound = rows >= 0 and units.shape == (columns,) and bool(np.all(np.isfinite(units) & (units > 0)))
    if not sound or (axes is not None and grid is None):
        raise WireError("a table's header does not fit together", hint=_AGAIN)
    if len(numbers) != columns * rows:
        raise WireError(f"a table of {rows} rows holds {len(numbers)} numbers", hint=_AGAIN)
    values = np.cumsum(numbers.reshape(columns, rows), axis=1) * units[:, None]
    if np.any(values < 0):
        raise WireError("a table holds negative rates or scores", hint=_AGAIN)
    rates = np.ascontiguousarray(values[:-1].T) if grid is None else grid
    return NodeTable(inputs, rates, values[-1], axes)


def frame(kind: int, header: Mapping[str, Any], columns: Sequence[Integers]) -> bytes:
    """A message: every column as differences, packed."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    packed = b"".join(_pack(np.diff(column, prepend=0)) for column in columns)
    body = _PREFIX.pack(MAGIC, VERSION, kind, len(text)) + text + packed
    return body + _CRC.pack(zlib.crc32(body))


def unframe(kind: int, message: bytes) -> tuple[dict[str, Any], Integers]:
    """Header and numbers (still differences) of an intact message of this kind."""
    if not _PREFIX.size + _CRC.size <= len(message) <= MAX_BYTES or not message.startswith(MAGIC):
        raise WireError("this message is not a table", hint=_AGAIN)
    _, version, found, length = _PREFIX.unpack_from(message)
    if version != VERSION:
        raise WireError(f"table format {version} is not known here, only {VERSION}", hint="Update the older node")
    if zlib.crc32(message[: -_CRC.size]) != _CRC.unpack(message[-_CRC.size :])[0]:
        raise WireError("a table arrived damaged (its checksum does not match)", hint=_AGAIN)
    if found != kind:
        raise WireError(f"this message is of kind {found}, not {kind}", hint=_AGAIN)
    start = _PREFIX.size + length
    try:
        header = load_json(message[_PREFIX.size : start])
    except (ValueError, RecursionError) as error:
        raise WireError("a table's header cannot be read", hint=_AGAIN) from error
    if not isinstance(header, dict):
        raise WireError("a table's header cannot be read", hint=_AGAIN)
    return header, _unpack(message[start : -_CRC.size])


def grid_rates(axes: tuple[Vector, ...], inputs: tuple[str, ...], rows: int) -> NDArray[np.float64] | None:
    """Rates of all grid points of sound axes; None if they are not axes of this table."""
    fits = len(axes) == len(inputs) > 0 and all(
        a.ndim == 1 and len(a) > 0 and bool(np.isfinite(a).all()) and a[0] == 0 and bool((np.diff(a) > 0).all())
        for a in axes
    )
    if not fits or int(np.prod([len(a) for a in axes])) != rows:
        return None
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij", copy=False)], axis=1)


def _unit(values: Vector) -> float:
    top = float(values.max(initial=0.0))
    return top / _PARTS if top > 0 else 1.0


def _pack(numbers: Integers) -> bytes:
    """Zigzag, then 7 bits a byte, lowest first; the top bit says that more follows."""
    left = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    size = np.ones(len(left), dtype=np.int64)
    rest = left >> np.uint64(7)
    while rest.any():
        size += rest > 0
        rest = rest >> np.uint64(7)
    end = np.cumsum(size)
    out = np.zeros(int(end[-1]) if len(end) else 0, dtype=np.uint8)
    for byte in range(int(size.max(initial=0))):
        has = size > byte
        bits = (left[has] >> np.uint64(7 * byte)) & np.uint64(0x7F)
        more = np.where(size[has] > byte + 1, np.uint64(0x80), np.uint64(0))
        out[(end - size)[has] + byte] = bits | more
    return out.tobytes()


def _unpack(data: bytes) -> Integers:
    raw = np.frombuffer(data, dtype=np.uint8)
    if not len(raw):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise WireError("a table ends inside a number", hint=_AGAIN)
    starts = np.append(0, ends[:-1] + 1)
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    if place.max() > 8:
        raise WireError("a table holds a number that is too long", hint=_AGAIN)
    parts = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    value = np.add.reduceat(parts, starts)
    half = (value >> np.uint64(1)).astype(np.int64)
    return np.where(value & np.uint64(1), ~half, half)
