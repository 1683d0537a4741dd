"""Max-min fair shares: who sends most loses first, and who stays below its share loses nothing.

Of a budget B each key k with weight w_k and count c_k gets min(c_k, λ·w_k), where the level λ makes the shares add up:

    Σ min(c_k, λ w_k) = B        keep_k = min(1, λ w_k / c_k)        keep = 1 for all if Σ c_k <= B

λ is found by filling: keys in the order of c_k / w_k are satisfied one after the other while what is left of the budget,
shared among the rest by weight, is more than they ask for.

Counts are known for *heavy* keys only (those that a summary of the batch shows); all others together are one number.
As long as λ is above the heaviest key that can hide among them, they are kept whole; below it they share what is left.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from floodway.errors import InputError

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shares(Generic[Key]):
    """Keeps of heavy keys, the keep of all others, and the level λ: tuples per unit of weight (inf: all fits)."""

    keeps: Mapping[Key, float] = field(default_factory=dict)
    others: float = 1.0
    level: float = math.inf

    def keep(self, key: Key) -> float:
        """The share to keep of one key's tuples."""
        return self.keeps.get(key, self.others)


def fair_shares(
    budget: float,
    counts: Mapping[Key, float],
    *,
    others: float = 0.0,
    largest_other: float = 0.0,
    weights: Mapping[Key, float] | None = None,
) -> Shares[Key]:
    """The max-min fair keeps for a budget of tuples.

    `counts` are tuples of the heavy keys, `others` those of all other keys together, of which none has more than
    `largest_other`. A key without a weight has 1.

    >>> fair_shares(40, {"noisy": 90.0}, others=10.0, largest_other=1.0)
    Shares(keeps={'noisy': 0.3333333333333333}, others=1.0, level=30.0)
    >>> fair_shares(30, {"a": 10.0, "b": 20.0, "c": 40.0}).keeps
    {'a': 1.0, 'b': 0.5, 'c': 0.25}
    """
    given = weights or {}
    if budget < 0.0 or not math.isfinite(budget):
        raise InputError(f"a budget of {budget!r} tuples cannot be shared", hint="It is a finite number of at least 0")
    if any(not weight > 0.0 or not math.isfinite(weight) for weight in given.values()):
        raise InputError("weights of shares must be above 0", hint="Leave a key out to give it the weight 1")
    total = sum(counts.values()) + others
    if total <= budget:
        return Shares(dict.fromkeys(counts, 1.0))
    level = _level(budget - others, counts, given)
    if others <= 0.0 or level >= largest_other:
        return Shares(_keeps(level, counts, given), 1.0, level)
    # Keys that are not told apart are as large as the level: they share with the heavy ones in proportion.
    keep = budget / total
    level = _level(budget - keep * others, counts, given)
    return Shares(_keeps(level, counts, given), keep, level)


def _level(budget: float, counts: Mapping[Key, float], weights: Mapping[Key, float]) -> float:
    """λ for which the shares of these keys add up to the budget, 0 if there is none left."""
    left, weight = max(0.0, budget), sum(weights.get(key, 1.0) for key in counts)
    for key in sorted(counts, key=lambda key: counts[key] / weights.get(key, 1.0)):
        own = weights.get(key, 1.0)
        if counts[key] > left * own / weight:
            return left / weight
        left, weight = left - counts[key], weight - own
    return math.inf


def _keeps(level: float, counts: Mapping[Key, float], weights: Mapping[Key, float]) -> dict[Key, float]:
    return {
        key: 1.0 if count <= level * weights.get(key, 1.0) else level * weights.get(key, 1.0) / count
        for key, count in counts.items()
    }
