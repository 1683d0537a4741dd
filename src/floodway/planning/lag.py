"""Which tuples are skipped when too many wait: the oldest, so that the newest N are left.

Of every partition of the source, b_p tuples wait that are not skipped yet, and the newest N b_p / Σ b are left:

    b_p = latest_p - max(end_p, X_p)
    X_p = latest_p - floor(N b_p / Σ b)        skipped: positions in [end_p, X_p)

What is skipped already is no part of b: batches pass it in some partitions sooner than in others, and the others would
be skipped for it a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Positions = Mapping[str, tuple[int, ...]]
"""A position for every partition of a topic, from partition 0 on."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One partition: where the last batch ended, and where the partition ended when that batch was cut."""

    topic: str
    partition: int
    end: int
    latest: int


def skip_positions(waiting: Sequence[Waiting], most: int, before: Positions | None) -> Positions | None:
    """The position of every partition before which tuples are skipped; None: nothing is skipped.

    `before` are those in force. They only grow, and hold until the batches have passed them.

    >>> skip_positions([Waiting("clicks", 0, 100, 1100), Waiting("clicks", 2, 0, 3000)], 1000, None)
    {'clicks': (850, 0, 2250)}
    >>> skip_positions([Waiting("clicks", 0, 900, 1900)], 1000, {"clicks": (850,)}) is None
    True
    """
    total = left_waiting(waiting, before)
    found: dict[str, list[int]] = {topic: list(positions) for topic, positions in (before or {}).items()}
    if total > most:
        for one in waiting:
            known = found.setdefault(one.topic, [])
            known.extend([0] * (one.partition + 1 - len(known)))
            left = most * left_waiting([one], before) // total
            known[one.partition] = max(known[one.partition], one.latest - left)
    ahead = any(one.end < _position(found, one) for one in waiting)
    return {topic: tuple(positions) for topic, positions in found.items()} if ahead else None


def left_waiting(waiting: Sequence[Waiting], positions: Positions | None) -> int:
    """Tuples that wait and are not skipped."""
    return sum(max(0, one.latest - max(one.end, _position(positions or {}, one))) for one in waiting)


def _position(positions: Mapping[str, Sequence[int]], one: Waiting) -> int:
    known = positions.get(one.topic, ())
    return known[one.partition] if one.partition < len(known) else 0
