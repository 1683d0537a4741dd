"""Logs of connections for the intrusion catalogue: generated ones, and traces given by path, as tuples for a log.

A trace is a CSV (or .csv.gz) with the columns ts, source, destination, protocol and service; ts in seconds since 1970.
The protocol of a connection is its protocol and service, such as `udp/53`.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from floodway import InputError
from floodway.spark import parse_schema

SCHEMA = "at timestamp, source string, destination string, protocol string"
_NEEDED = ("ts", "source", "destination", "protocol", "service")


def read_trace(path: Path) -> pa.Table:
    """All connections of a trace, in the order of time."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = csv.DictReader(io.StringIO(raw.decode("utf-8")))
    missing = [name for name in _NEEDED if name not in (lines.fieldnames or ())]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}", hint=f"It needs {', '.join(_NEEDED)}")
    rows = sorted(lines, key=lambda row: float(row["ts"]))
    return connections(
        [round(float(row["ts"]) * 1e6) for row in rows],
        [row["source"] for row in rows],
        [row["destination"] for row in rows],
        [f"{row['protocol']}/{row['service']}" for row in rows],
    )


def generated(seed: int, *, seconds: float, rate: float, start: float = 1_700_000_000.0) -> pa.Table:
    """Made-up traffic: Poisson arrivals, sources by Zipf's law, a few of them scanning many protocols."""
    rng = np.random.default_rng(seed)
    count = int(rng.poisson(rate * seconds))
    at = np.sort(rng.uniform(start, start + seconds, count))
    source = np.minimum(rng.zipf(1.5, count), 60)
    scans = source % 7 == 0
    protocol = np.where(scans, rng.integers(0, 12, count), rng.integers(0, 2, count))
    return connections(
        [round(one * 1e6) for one in at.tolist()],
        [f"10.0.{one // 8}.{one}" for one in source.tolist()],
        [f"10.9.0.{one}" for one in rng.integers(1, 200, count).tolist()],
        [f"tcp/{one}" for one in protocol.tolist()],
    )


def connections(at_us: list[int], source: list[str], destination: list[str], protocol: list[str]) -> pa.Table:
    """Columns as a log of connections stores them; times in microseconds since 1970."""
    schema = parse_schema(SCHEMA)
    times = pa.array(at_us, pa.int64()).cast(schema.field("at").type)
    return pa.table([times, pa.array(source), pa.array(destination), pa.array(protocol)], names=schema.names)


def parts(table: pa.Table, count: int) -> Iterator[pa.Table]:
    """A trace cut into `count` by source, so that each part can be watched alone."""
    places = np.array([sum(map(ord, source)) % count for source in table.column("source").to_pylist()])
    for place in range(count):
        yield table.filter(pa.array(places == place))
