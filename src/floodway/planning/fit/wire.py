"""A table on the wire: versioned, checksummed, a few bytes a number.

Numbers are sent as whole multiples of a unit per column, each as the difference to the row before, in as few bytes as
it takes (7 bits a byte, zigzag). The rates of a grid are not sent at all, only its axes; the paper's rows take 22·m +
8 bytes. Rounding is on the safe side: rates up, scores down, so that a node never promises more than it can do.

    magic "FT", version, kind | header length, header (JSON) | numbers | CRC-32
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.json_text import load_json
from floodway.planning.fit.node import NodeTable
from floodway.planning.program import Vector

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
