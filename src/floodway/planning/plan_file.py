"""Plans in a file: one versioned format for region maps, solver trees and FIT tables.

A planner that can be stored implements two methods and is named in `factory.PLANNERS`:

    to_arrays() -> (meta, arrays)                       meta: what JSON can hold; arrays: numpy arrays by name
    from_arrays(program, meta, arrays) -> the planner   raises PlanFileError on what it cannot use

Layout, little-endian: magic (8 bytes), version (u2), header length (u4), header (JSON: planner, network fingerprint,
headroom, meta, name/dtype/shape of every array), the arrays' bytes in that order, CRC-32 (u4) of all before it.
Nothing in a file is ever executed, and no size in it is trusted before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.json_text import load_json
from floodway.network.model import Network
from floodway.planning.factory import PLANNERS
from floodway.planning.plan import Planner
from floodway.planning.program import Program

MAGIC = b"FLDWPLAN"
VERSION = 1
MAX_BYTES = 2**30
_PREFIX = struct.Struct("<8sHI")
_CRC = struct.Struct("<I")
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "<u2", "|u1", "|b1")

Meta = dict[str, Any]
Arrays = dict[str, NDArray[Any]]


class PlanFileError(InputError):
    """A plan file that is not one, is damaged, or belongs to another network or version."""


@runtime_checkable
class Storable(Protocol):
    """A planner that can be written down."""

    def to_arrays(self) -> tuple[Meta, Arrays]:
        """What `from_arrays` needs to give the same look-ups again."""
        ...

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The planner that was written down, for the same program."""
        ...


def fingerprint(program: Program) -> str:
    """SHA-256 of everything a plan depends on, in file order, since vectors follow that order.

    Fields that change no plan (addresses, sinks, latency targets, the network's name) are left out.
    """
    return hashlib.sha256(json.dumps(_canonical(program.network, program.headroom)).encode()).hexdigest()


def save(planner: Planner, path: Path) -> None:
    """Write the planner's plans to `path`, atomically."""
    if not isinstance(planner, Storable) or planner.name not in PLANNERS:
        raise InputError(
            f"the {planner.name!r} planner prepares nothing that could be saved for this objective",
            hint="Save with the throughput objective, or plan without --save",
        )
    meta, arrays = planner.to_arrays()
    body = encode(planner.name, planner.program, meta, arrays)
    # Written beside the target and renamed, so that a reader never sees half a file.
    partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.partial")
    try:
        partial.write_bytes(body)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", hint="Choose another --save path") from error
    finally:
        with suppress(OSError):  # a read-only disk refuses that, too, and has no such file
            partial.unlink()


def load(path: Path, program: Program) -> Planner:
    """Read plans back for `program`; anything but an intact file for this very network is refused."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlanFileError(f"{path} is larger than {MAX_BYTES} bytes", hint="This is no plan file")
        body = path.read_bytes()
    except OSError as error:
        raise PlanFileError(f"{path} cannot be read: {error.strerror}", hint="Write one with --save") from error
    name, meta, arrays = decode(body, program, source=str(path))
    module, kind = PLANNERS[name]
    planner_class = cast(type[Storable], getattr(import_module(module), kind))
    return cast(Planner, planner_class.from_arrays(program, meta, arrays))


def encode(name: str, program: Program, meta: Meta, arrays: Arrays) -> bytes:
    """The bytes of a plan file."""
    tidy = {key: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for key, array in arrays.items()}
    header = {
        "planner": name,
        "network": fingerprint(program),
        "headroom": program.headroom,
        "meta": meta,
        "arrays": [[key, array.dtype.str, list(array.shape)] for key, array in tidy.items()],
    }
    text = json.dumps(header, allow_nan=False).encode()
    body = _PREFIX.pack(MAGIC, VERSION, len(text)) + text + b"".join(array.tobytes() for array in tidy.values())
    return body + _CRC.pack(zlib.crc32(body))


def decode(body: bytes, program: Program, *, source: str = "plan file") -> tuple[str, Meta, Arrays]:
    """Planner name, meta and arrays of a plan file that is intact and meant for `program`."""
    again = "Make it again with `floodway plan NET --planner … --save FILE`"
    if len(body) < _PREFIX.size + _CRC.size or not body.startswith(MAGIC):
        raise PlanFileError(f"{source} is not a Floodway plan file", hint=again)
    _, version, length = _PREFIX.unpack_from(body)
    if version != VERSION:
        raise PlanFileError(f"{source} has format version {version}; this Floodway reads version {VERSION}", hint=again)
    if zlib.crc32(body[: -_CRC.size]) != _CRC.unpack(body[-_CRC.size :])[0]:
        raise PlanFileError(f"{source} is truncated or damaged (its checksum does not match)", hint=again)
    try:
        header = load_json(body[_PREFIX.size : _PREFIX.size + length])
        name, network, meta = header["planner"], header["network"], dict(header["meta"])
        layout = [(str(key), str(dtype), [int(n) for n in shape]) for key, dtype, shape in header["arrays"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PlanFileError(f"{source} has a header that cannot be read", hint=again) from error
    if name not in PLANNERS:
        raise PlanFileError(f"{source} is of an unknown planner {name!r}", hint=again)
    if network != fingerprint(program):
        raise PlanFileError(f"{source} was made for another network or another headroom", hint=again)
    return name, meta, _arrays(body[_PREFIX.size + length : -_CRC.size], layout, source, again)


def _arrays(payload: bytes, layout: list[tuple[str, str, list[int]]], source: str, hint: str) -> Arrays:
    arrays: Arrays = {}
    at = 0
    for key, dtype, shape in layout:
        if dtype not in _DTYPES or min(shape, default=0) < 0 or len(shape) > 4:
            raise PlanFileError(f"{source} holds an array {key!r} of a kind no planner writes", hint=hint)
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > len(payload) - at:
            raise PlanFileError(f"{source} ends inside the array {key!r}", hint=hint)
        arrays[key] = np.frombuffer(payload, dtype, math.prod(shape), at).reshape(shape).copy()
        at += size
    if at != len(payload):
        raise PlanFileError(f"{source} has {len(payload) - at} bytes more than it declares", hint=hint)
    return arrays


def require(condition: bool, what: str) -> None:
    """For `from_arrays`: refuse content that does not fit together."""
    if not condition:
        raise PlanFileError(f"the plan file's content is inconsistent: {what}", hint="Make it again with --save")


def array(arrays: Mapping[str, NDArray[Any]], key: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """For `from_arrays`: the array of this name and shape (None: any length), free of NaN and infinity."""
    require(key in arrays, f"no array {key!r}")
    found = arrays[key]
    fits = found.ndim == len(shape) and all(n is None or n == m for n, m in zip(shape, found.shape, strict=True))
    require(fits, f"array {key!r} has shape {found.shape}")
    require(bool(np.isfinite(found).all()), f"array {key!r} holds NaN or infinity")
    return found


def _canonical(network: Network, headroom: float) -> list[object]:
    return [
        headroom,
        [[s.name, s.max_rate, s.bytes] for s in network.streams.values()],
        [[n.name, n.cpu, n.memory] for n in network.nodes.values()],
        [
            [o.name, o.node, o.inputs, o.kind, o.cost, o.selectivity, o.windows, o.window, o.bytes]
            + ([] if o.state_bytes is None else [o.state_bytes])
            for o in network.operators.values()
        ],
        [[q.name, q.source, q.weight, q.tier] for q in network.outputs.values()],
        [[link.source, link.target, link.bandwidth] for link in network.links],
    ]
