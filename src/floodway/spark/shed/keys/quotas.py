"""The quotas of keys in a decision: what part of each heavy key's tuples is kept, and of all others.

A key is the upper 53 bits of its value's hash: a whole number that survives JSON and doubles. Quotas aim at one keep
over all tuples. A batch may move that keep by its own length (`control_table.Entry`), and the quotas follow: a decision
holds the level λ and the quota of all others for keeps from 0 to 1.25 of the one aimed at, in even steps. A batch takes
both in between by a straight line, and a key with the base b, its share of the tuples over its weight, has the quota

    q = min(1, λ / b)        (`planning/shares.py`)

so a batch that keeps less takes it from those who send most, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import FiniteFloat

from floodway.units import PPM

STEPS = 16
"""Steps from no keep at all to the one aimed at; a power of two, so that Spark and Python compute the same."""

MOST_STEPS = 20
"""A batch moves its keep up by a quarter at most."""

LEAST_BASE = 1e-9
"""The base of what is kept whole however little is kept."""

LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
MOST_KEYS = 128
"""Keys with a quota of their own; each tuple is compared with all of them."""

KEY_BITS = 53
"""Of a key's hash: a whole number that survives JSON and doubles."""

SHOWN, MOST_NAME = 8, 80
"""Keys in the status, and characters of a key's name there."""

MOST_COUNTED_KEYS = 100_000
"""Keys that a task tells apart to keep the first tuples of each (`rare.py`)."""

MOST_RARE_PPM = 990_000
"""The share of the tuples that may be the first of their keys, at most."""

MOST_NULL = 0.99
ALL_NULL = "share_by= is null in nearly all tuples: those have one share together, as if there were one tenant"
NO_LARGE_KEY = (
    "no value of share_by= has a thousandth of the tuples: they are too many to count, and all have the same share, as "
    "without share_by="
)

QUOTAS_SCHEMA = (
    "keys:array<bigint>,bases:array<double>,levels:array<double>,others:array<int>,asked:bigint,sizes:array<double>"
)


@dataclass(frozen=True, slots=True)
class Quotas:
    """`bases[i]` is the base of `keys[i]`; `levels` and `others`, the quota in ppm of every other key, are by step.

    Without levels every key has the keep of the batch. `asked` is the key whose name the batch is to tell; None: none.
    `sizes` say how a batch samples its tuples (`planning/estimates/group_sample.py`).

    >>> quotas = Quotas.fair(0.6, {7: 0.8}, limit=0.1, weights={})
    >>> quotas.keeps, quotas.others_ppm
    ((500000,), 1000000)
    >>> quotas.in_batch(keep_ppm=300_000, aimed_ppm=600_000)
    (((7, 125000),), 1000000)
    """

    keys: tuple[int, ...] = ()
    bases: tuple[FiniteFloat, ...] = ()
    levels: tuple[FiniteFloat, ...] = ()
    others: tuple[int, ...] = ()
    asked: int | None = None
    sizes: tuple[FiniteFloat, ...] = ()

    @classmethod
    def fair(
        cls,
        keep: float,
        loads: Mapping[int, float],
        limit: float,
        weights: Mapping[int, float],
        asked: int | None = None,
    ) -> Quotas:
        """Max-min fair quotas. `loads` are shares of all tuples by key; a key that is not there has at most `limit`."""
        from floodway.planning.shares import fair_shares

        rest = max(0.0, 1.0 - sum(loads.values()))
        bases = tuple(max(LEAST_BASE, load / weights.get(key, 1.0)) for key, load in loads.items())
        whole = max(bases, default=1.0)
        found = [
            fair_shares(keep * step / STEPS, loads, others=rest, largest_other=limit, weights=weights)
            for step in range(MOST_STEPS + 1)
        ]
        levels = tuple(min(whole, one.level) for one in found)
        return cls(tuple(loads), bases, levels, tuple(round(one.others * PPM) for one in found), asked)

    @classmethod
    def of_groups(
        cls,
        keep: float,
        names: Sequence[int],
        keeps: Sequence[float],
        others: float,
        whole: float,
        sizes: tuple[float, ...],
    ) -> Quotas:
        """These quotas at this keep over all tuples, of which a share `whole` is of groups that are kept whole.

        Those stay whole in a batch that moves its keep, and all others change by the factor that makes the sum right.
        """
        bases = tuple(LEAST_BASE if part >= 1.0 else 1.0 / max(part, 1.0 / PPM) for part in keeps)
        moved = [(keep * step / STEPS - whole) / max(keep - whole, 1.0 / PPM) for step in range(MOST_STEPS + 1)]
        moved[STEPS] = 1.0
        levels = tuple(min(max(factor, LEAST_FACTOR), MOST_FACTOR) for factor in moved)
        parts = tuple(PPM if others >= 1.0 else min(PPM, round(others * level * PPM)) for level in levels)
        return cls(tuple(names), bases, levels, parts, sizes=sizes)

    @property
    def keeps(self) -> tuple[int, ...]:
        """The quotas in ppm of the keys at the keep aimed at."""
        return tuple(_quota(self.levels[STEPS], base) for base in self.bases)

    @property
    def others_ppm(self) -> int:
        """The quota of every other key at the keep aimed at."""
        return self.others[STEPS] if self.others else PPM

    def in_batch(self, keep_ppm: int, aimed_ppm: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """The quotas of a batch: those of keys that differ from the others', and the others'.

        It keeps `keep_ppm` where `aimed_ppm` was aimed at; the same as `key_columns.with_quota`.
        """
        if keep_ppm >= PPM or not self.levels:
            return (), min(keep_ppm, PPM)
        at = min(keep_ppm / max(aimed_ppm, 1) * STEPS, float(MOST_STEPS))
        level, others = _between(self.levels, at), math.floor(_between(self.others, at))
        moved = ((key, _quota(level, base)) for key, base in zip(self.keys, self.bases, strict=True))
        return tuple((key, ppm) for key, ppm in moved if ppm != others), others


def rest_ppm(keep_ppm: int, rare_ppm: int) -> int:
    """The keep of the tuples that are not the first of their keys, where the first are a share `rare_ppm` of all.

    >>> rest_ppm(400_000, 200_000), rest_ppm(100_000, 200_000), rest_ppm(1_000_000, 200_000)
    (250000, 0, 1000000)
    """
    return max(0, math.floor((keep_ppm - rare_ppm) * PPM / (PPM - rare_ppm)))


def rest_sql(keep_ppm: str, rare_ppm: str) -> str:
    """`rest_ppm` as an expression of Spark."""
    return f"int(greatest(floor(double({keep_ppm} - {rare_ppm}) * {PPM} / ({PPM} - {rare_ppm})), 0))"


def key_counts(histogram: Sequence[Any]) -> dict[int, int]:
    """Tuples by place among the tracked keys. A place stands in as many bins as partitions counted it.

    Spark joins bins of one place at the mean of their places, weighted by counts, which may be a little beside it.

    >>> key_counts([{"x": 6.999999999999999, "y": 40.0}, {"x": 7.0, "y": 2.0}])
    {7: 42}
    """
    found: dict[int, int] = {}
    for one in histogram:
        place = round(one["x"])
        found[place] = found.get(place, 0) + round(one["y"])
    return found


def _between(values: Sequence[float], at: float) -> float:
    """The value at a place between two steps, on the straight line from one to the other."""
    step = math.floor(at)
    low, high = values[step], values[min(step + 1, MOST_STEPS)]
    return low + (at - step) * (high - low)


def _quota(level: float, base: float) -> int:
    """min(1, λ / b) in ppm."""
    return math.floor(min(float(PPM), PPM * level / base + 0.5))
