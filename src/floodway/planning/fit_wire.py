"""A table on the wire: versioned, checksummed, a few bytes a number; and the rows that changed between two tables.

Numbers are sent as whole multiples of a unit per column, each as the difference to the row before, in as few bytes as it
takes (7 bits a byte, zigzag). Grid offers are exact multiples and cost about a byte; the paper's rows take 22·m + 8 bytes.
Rounding is on the safe side: rates up, scores down, so that a node never promises more than it can do.

    magic "FT", version, flags | header JSON length, header | columns | CRC-32
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.planning.fit_node import NodeTable
from floodway.planning.program import Vector

MAGIC = b"FT"
VERSION = 1
MAX_BYTES = 64 * 2**20
_PREFIX = struct.Struct("<2sBI")
_CRC = struct.Struct("<I")
_PARTS = 2**24
"""A column without a grid is sent in parts of its largest number: six digits in about three bytes."""


class WireError(InputError):
    """A message that is not a table, is damaged, or is of a version this side does not speak."""


def encode_table(table: NodeTable) -> bytes:
    """The bytes of a table."""
    axes = None if table.axes is None else [axis.tolist() for axis in table.axes]
    columns: list[NDArray[np.int64]] = []
    units: list[float] = []
    if axes is None:
        for rates in table.rates.T:
            unit = _unit(rates)
            units.append(unit)
            columns.append(np.ceil(rates / unit - 1e-9).astype(np.int64))
    unit = _unit(table.scores)
    units.append(unit)
    columns.append(np.floor(table.scores / unit + 1e-9).astype(np.int64))
    header = json.dumps(
        {"inputs": list(table.inputs), "rows": len(table), "units": units, "axes": axes}, separators=(",", ":")
    ).encode()
    packed = b"".join(_pack(np.diff(column, prepend=0)) for column in columns)
    body = _PREFIX.pack(MAGIC, VERSION, len(header)) + header + packed
    return body + _CRC.pack(zlib.crc32(body))


def decode_table(message: bytes) -> NodeTable:
    """The table in a message; anything else is refused."""
    again = "Ask the child node for its table again"
    if not _PREFIX.size + _CRC.size <= len(message) <= MAX_BYTES or not message.startswith(MAGIC):
        raise WireError("this message is not a table", hint=again)
    _, version, length = _PREFIX.unpack_from(message)
    if version != VERSION:
        raise WireError(f"table format {version} is not known here, only {VERSION}", hint="Update the older node")
    if zlib.crc32(message[: -_CRC.size]) != _CRC.unpack(message[-_CRC.size :])[0]:
        raise WireError("a table arrived damaged (its checksum does not match)", hint=again)
    start = _PREFIX.size + length
    try:
        header = json.loads(message[_PREFIX.size : start])
        inputs = tuple(str(name) for name in header["inputs"])
        rows, units = int(header["rows"]), np.array(header["units"], dtype=np.float64)
        axes = None if header["axes"] is None else tuple(np.array(a, dtype=np.float64) for a in header["axes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError("a table's header cannot be read", hint=again) from error
    columns = 1 if axes is not None else len(inputs) + 1
    grid = _grid(axes, inputs, rows) if axes is not None else None
    sound = rows >= 0 and units.shape == (columns,) and bool(np.all(np.isfinite(units) & (units > 0)))
    if not sound or (axes is not None and grid is None):
        raise WireError("a table's header does not fit together", hint=again)
    numbers = _unpack(message[start : -_CRC.size])
    if len(numbers) != columns * rows:
        raise WireError(f"a table of {rows} rows holds {len(numbers)} numbers", hint=again)
    values = np.cumsum(numbers.reshape(columns, rows), axis=1) * units[:, None]
    if np.any(values < 0):
        raise WireError("a table holds negative rates or scores", hint=again)
    rates = values[:-1].T if grid is None else grid
    return NodeTable(inputs, np.ascontiguousarray(rates), values[-1], axes)


@dataclass(frozen=True)
class TableDelta:
    """Rows of the new table to send: their positions and the table they make up; the rest stays as it was."""

    changed: NDArray[np.int64]
    rows: NodeTable

    @property
    def share(self) -> float:
        """Part of the new table that has to travel."""
        return len(self.changed) / max(self.of, 1)

    of: int = 0


def table_delta(old: NodeTable, new: NodeTable, tolerance: float) -> TableDelta:
    """Rows of `new` that the old table does not tell within `tolerance` (a part of the row's score).

    A row can be left out if the old table has the same rates with a score that is no more than the new one's and at
    least (1 − tolerance) of it. Rows that are no longer feasible are covered by `feasible_then`, see `apply_delta`.
    """
    known = {row.tobytes(): float(score) for row, score in zip(np.round(old.rates, 12) + 0.0, old.scores, strict=True)}
    changed = []
    for i, (row, score) in enumerate(zip(np.round(new.rates, 12) + 0.0, new.scores, strict=True)):
        before = known.get(row.tobytes())
        slack = tolerance * max(float(score), 1e-300)
        if before is None or abs(before - float(score)) > slack:
            changed.append(i)
    index = np.array(changed, dtype=np.int64)
    return TableDelta(index, NodeTable(new.inputs, new.rates[index], new.scores[index]), len(new))


def _grid(axes: tuple[Vector, ...], inputs: tuple[str, ...], rows: int) -> NDArray[np.float64] | None:
    fits = len(axes) == len(inputs) > 0 and all(
        a.ndim == 1 and len(a) > 0 and np.all(np.isfinite(a)) and a[0] == 0 and np.all(np.diff(a) > 0) for a in axes
    )
    if not fits or int(np.prod([len(a) for a in axes])) != rows:
        return None
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)


def _unit(values: Vector) -> float:
    top = float(values.max(initial=0.0))
    return top / _PARTS if top > 0 else 1.0


def _pack(numbers: NDArray[np.int64]) -> bytes:
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


def _unpack(data: bytes) -> NDArray[np.int64]:
    raw = np.frombuffer(data, dtype=np.uint8)
    if not len(raw):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise WireError("a table ends inside a number", hint="Ask the child node for its table again")
    starts = np.append(0, ends[:-1] + 1)
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    if place.max() > 8:
        raise WireError("a table holds a number that is too long", hint="Ask the child node for its table again")
    parts = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    value = np.add.reduceat(parts, starts)
    half = (value >> np.uint64(1)).astype(np.int64)
    return np.where(value & np.uint64(1), ~half, half)
