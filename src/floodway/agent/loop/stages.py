"""An end-to-end target over a chain of queries: each gets an equal share of the way, corrected by what is measured.

Latency is always counted from a tuple's first arrival. A query that is number k of d on its longest path is asked to
have its results out by T·k/d, so the last one answers for the whole target, and what the ones before it really took
shows in its own measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.spark.query.fragments import Fragment


@dataclass(frozen=True, slots=True)
class Stage:
    """A query's place on its longest path: number `position` of `depth`."""

    position: int
    depth: int

    def target_seconds(self, end_to_end: float) -> float:
        """When this query's results are due, counted from a tuple's first arrival."""
        return end_to_end * self.position / self.depth

    def share_seconds(self, end_to_end: float) -> float:
        """The part of the target that is this query's own."""
        return end_to_end / self.depth


def stages(fragments: Mapping[str, Fragment]) -> dict[str, Stage]:
    """The stage of every query, from the logs that connect them."""
    home = {operator: name for name, fragment in fragments.items() for operator in fragment.operators}
    after: dict[str, set[str]] = {
        name: {home[arc.consumer] for arc in fragment.cut if arc.consumer in home}
        for name, fragment in fragments.items()
    }
    before = {name: {other for other, targets in after.items() if name in targets} for name in fragments}

    def longest(name: str, neighbours: Mapping[str, set[str]], seen: frozenset[str]) -> int:
        # Nodes may feed each other; a query counts once on a path.
        onward = [n for n in neighbours[name] if n not in seen]
        return 1 + max((longest(n, neighbours, seen | {name}) for n in onward), default=0)

    found = {}
    for name in fragments:
        position, below = longest(name, before, frozenset()), longest(name, after, frozenset())
        found[name] = Stage(position, position + below - 1)
    return found
