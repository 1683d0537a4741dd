"""Recorded traffic given by path: which of its three kinds a file is, and which results can run on that.

Counts of arrivals have one whole number a line, readings of hosts a column of numbers a host, logs of connections named
columns.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from floodway.errors import InputError
from floodway.simulation.arrivals import read_trace

LEAST_HOSTS = 10
CONNECTION_COLUMNS = frozenset({"ts", "source", "destination", "protocol", "service"})


@dataclass(frozen=True, slots=True)
class TraceKind:
    """What a file holds, in words, and the results that take it."""

    name: str
    results: tuple[str, ...]


ARRIVALS = TraceKind("counts of arrivals", ("buffer-fig8", "staying-fit-fig11", "staying-fit-adaptive"))
READINGS = TraceKind("readings of hosts", ("dissp-spark-fig5", "dissp-spark-fig6", "dissp-spark-fig7"))
CONNECTIONS = TraceKind("a log of connections", ("federation-fig13",))
KINDS = (ARRIVALS, READINGS, CONNECTIONS)


def kind_of(path: Path) -> TraceKind:
    """The kind of a trace; refused if it is none."""
    open_text = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8") as lines:
            head, first = lines.readline().strip(), lines.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--trace {path} cannot be read: {error}", hint="Give a CSV, or a .csv.gz") from None
    columns = [name.strip() for name in head.split(",")]
    if set(columns) >= CONNECTION_COLUMNS:
        return CONNECTIONS
    if len(columns) >= LEAST_HOSTS:
        return READINGS
    if head.isdigit() or first.isdigit():
        read_trace(path)  # refuses a line that is no count
        return ARRIVALS
    raise InputError(
        f"--trace {path} is no trace that a result can run on",
        hint="Give counts of arrivals (one whole number a line), readings (a head, and a column of numbers for each of "
        f"{LEAST_HOSTS} hosts) or connections (columns {', '.join(sorted(CONNECTION_COLUMNS))})",
    )


def fitting(path: Path, names: Collection[str]) -> tuple[str, ...]:
    """Those of the named results that run on this trace; refused if there is none."""
    kind = kind_of(path)
    found = tuple(name for name in names if name in kind.results)
    if found:
        return found
    others = {name: one.name for one in KINDS for name in one.results if name in names}
    wanted = "; ".join(f"{name} takes {what}" for name, what in others.items()) or "these take no trace"
    raise InputError(
        f"--trace {path} holds {kind.name}, and no result that was asked for takes that: {wanted}",
        hint=f"{', '.join(kind.results)} can run on it",
    )
