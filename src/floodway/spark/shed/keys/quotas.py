"""The quotas of keys in a decision: what part of each heavy key's tuples is kept, and of all others.

A key is the upper 53 bits of its value's hash: a whole number that survives JSON and doubles. Quotas aim at one keep
over all tuples. A batch may move that keep by its own length (`control_table.Entry`), and the quotas follow: what is
kept whole stays whole, and the others' quotas change by the factor that makes the sum right,

    f = (keep in force - whole) / (keep aimed at - whole),   within [0.25, 4]

where `whole` is the share of the tuples whose keys are kept whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from floodway.planning.shares import fair_shares
from floodway.units import PPM

LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
MOST_KEYS = 128
"""Keys with a quota of their own; each tuple is compared with all of them."""

QUOTAS_SCHEMA = "keys:array<bigint>,keeps:array<int>,others_ppm:int,whole_ppm:int,asked:bigint,sizes:array<double>"


@dataclass(frozen=True, slots=True)
class Quotas:
    """`keeps[i]` is the quota in ppm of the tuples of `keys[i]`, `others_ppm` that of every other key.

    `asked` is the key whose name the batch is to tell; None: none. `sizes` say how a batch samples its tuples
    (`planning/estimates/group_sample.py`).

    >>> quotas = Quotas((7,), (500_000,), whole_ppm=200_000)
    >>> [quotas.moved(ppm, keep_ppm=400_000, aimed_ppm=600_000) for ppm in (500_000, 1_000_000)]
    [250000, 1000000]
    """

    keys: tuple[int, ...] = ()
    keeps: tuple[int, ...] = ()
    others_ppm: int = PPM
    whole_ppm: int = 0
    asked: int | None = None
    sizes: tuple[float, ...] = ()

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
        others = max(0.0, 1.0 - sum(loads.values()))
        shares = fair_shares(keep, loads, others=others, largest_other=limit, weights=weights)
        whole = sum(load for key, load in loads.items() if shares.keeps[key] >= 1.0)
        if shares.others >= 1.0:
            whole += others
        keeps = tuple(round(shares.keeps[key] * PPM) for key in loads)
        return cls(tuple(loads), keeps, round(shares.others * PPM), min(PPM, round(whole * PPM)), asked)

    def moved(self, ppm: int, keep_ppm: int, aimed_ppm: int) -> int:
        """A quota in a batch that keeps `keep_ppm` where `aimed_ppm` was aimed at; the same as `key_columns.quota`."""
        if ppm >= PPM or keep_ppm >= PPM:
            return PPM
        factor = (keep_ppm - self.whole_ppm) / max(aimed_ppm - self.whole_ppm, 1)
        return math.floor(min(float(PPM), ppm * min(max(factor, LEAST_FACTOR), MOST_FACTOR)))

    def in_batch(self, keep_ppm: int, aimed_ppm: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """The quotas of a batch: those of keys that differ from the others', and the others'."""
        others = self.moved(self.others_ppm, keep_ppm, aimed_ppm)
        moved = ((key, self.moved(ppm, keep_ppm, aimed_ppm)) for key, ppm in zip(self.keys, self.keeps, strict=True))
        return tuple((key, ppm) for key, ppm in moved if ppm != others), others
