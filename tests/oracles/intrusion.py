"""The intrusion query over a list of connections, in plain Python: what its catalogue entries must find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Connection(NamedTuple):
    """One line of a log; `at` in seconds since 1970."""

    at: float
    source: str
    destination: str
    protocol: str


Row = tuple[int, str, int]
"""Start of the window, source or cluster, count."""


def windows(connections: Iterable[Connection], window: int) -> dict[tuple[int, str], list[Connection]]:
    """Connections by the window that they fall in and by source."""
    found: dict[tuple[int, str], list[Connection]] = defaultdict(list)
    for one in connections:
        found[int(one.at // window * window), one.source].append(one)
    return found


def closed(connections: Iterable[Connection], window: int) -> int:
    """Windows that start before this are complete: a later connection has been seen beyond their end."""
    return int(max(one.at for one in connections) // window * window)


def active(connections: list[Connection], window: int, at_least: int) -> set[Row]:
    """Sources with at least so many connections."""
    end = closed(connections, window)
    counts = {key: len(found) for key, found in windows(connections, window).items() if key[0] < end}
    return {(start, source, count) for (start, source), count in counts.items() if count >= at_least}


def protocols(connections: list[Connection], window: int, at_least: int) -> set[Row]:
    """Sources that used at least so many protocols."""
    end = closed(connections, window)
    counts = {
        key: len({one.protocol for one in found}) for key, found in windows(connections, window).items() if key[0] < end
    }
    return {(start, source, count) for (start, source), count in counts.items() if count >= at_least}


def clusters(
    connections: list[Connection], window: int, at_least: int, sources: int, prefix: int
) -> set[tuple[int, str, int, int]]:
    """Neighbourhoods with several active sources: window, prefix, sources, connections."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for start, source, count in active(connections, window, at_least):
        found[start, ".".join(source.split(".")[:prefix])].append(count)
    return {(*key, len(counts), sum(counts)) for key, counts in found.items() if len(counts) >= sources}


def suspects(
    connections: list[Connection], window: int, at_least: int, at_least_protocols: int
) -> set[tuple[int, str, int, int]]:
    """Sources that are active and use many protocols."""
    many = {(start, source): count for start, source, count in protocols(connections, window, at_least_protocols)}
    return {
        (start, source, count, many[start, source])
        for start, source, count in active(connections, window, at_least)
        if (start, source) in many
    }
