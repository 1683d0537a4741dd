"""Max-min fair shares: who sends most loses first, and who stays below its share loses nothing.

Of a budget B each key k with weight w_k and count c_k gets min(c_k, λ w_k), where the level λ makes the shares add up:

    Σ min(c_k, λ w_k) = B        keep_k = min(1, λ w_k / c_k)        keep = 1 for all if Σ c_k <= B

λ is found by filling: keys in the order of c_k / w_k are satisfied one after the other while what is left of the
budget, shared among the rest by weight, is more than they ask for.

Counts are known for *heavy* keys only (`KeyLoads`); all others together are one number, and one of them has at most
`largest_other`. While λ is above that they are kept whole. Below it nobody knows how many they are: they share what is
left, and a heavy key gets at most `largest_other`, or the same part of its tuples as they if that is less.

Which keys send how much, from two things that every batch tells in bounded space.

- *Points*: the keys (as hashes) at L evenly spaced ranks of the batch's tuples in the order of their key. A key with a
  share p of the tuples has p L of the points, give or take one. So a key with two points has more than 1/L of the
  tuples and is *heavy*, and every key with more than 2/L is found.
- *Counts*: the tuples of the keys that were tracked when the batch was cut, exact.

A key is found by its points in one batch, tracked from then on, and so counted exactly in those that follow. At most
`most` keys are tracked, the largest; a million others take no space at all.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
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
    >>> fair_shares(6, {"noisy": 90.0}, others=10.0, largest_other=1.0).others
    0.5
    """
    given = weights or {}
    if budget < 0.0 or not math.isfinite(budget):
        raise InputError(f"a budget of {budget!r} tuples cannot be shared", hint="It is a finite number of at least 0")
    total = sum(counts.values()) + others
    if total <= budget:
        return Shares(dict.fromkeys(counts, 1.0))
    level = _level(budget - others, counts, given)
    if others <= 0.0 or (budget >= others and level >= largest_other):
        return Shares(_keeps(level, counts, given), 1.0, level)
    level = min(largest_other, _level(budget - others * budget / total, counts, given))
    keeps = _keeps(level, counts, given)
    left = budget - sum(keeps[key] * count for key, count in counts.items())
    return Shares(keeps, min(1.0, max(0.0, left) / others), level)


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


REMEMBERED_BATCHES = 3
"""As many as the offered rate is taken over: a key that begins to send much is to pay soon."""


@dataclass(frozen=True, slots=True)
class _Batch:
    offered: int
    tuples: Mapping[int, float]
    width: float
    """The tuples that one point stands for."""


class KeyLoads:
    """What the keys of the last batches sent, as shares of all tuples.

    >>> loads = KeyLoads(most=2)
    >>> loads.add(1000, points=[7, 7, 7, 7, 8, 8, 9, 10], counts={})
    >>> loads.tracked(), loads.limit
    ({7: 0.5, 8: 0.25}, 0.25)
    >>> loads.add(1000, points=[7, 7, 7, 7, 8, 8, 9, 10], counts={7: 520, 8: 230})
    >>> loads.tracked()
    {7: 0.51, 8: 0.24}
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._batches: deque[_Batch] = deque(maxlen=REMEMBERED_BATCHES)

    def add(self, offered: int, points: Sequence[int], counts: Mapping[int, int]) -> None:
        """Remember a batch; one without tuples says nothing."""
        if offered <= 0 or not points:
            return
        found = Counter(points)
        width = offered / len(points)
        tuples: dict[int, float] = {key: count * width for key, count in found.items() if count >= 2}
        tuples.update(counts)
        self._batches.append(_Batch(offered, tuples, width))

    @property
    def offered(self) -> int:
        """Tuples of the batches that are remembered."""
        return sum(batch.offered for batch in self._batches)

    def tracked(self) -> dict[int, float]:
        """The largest keys and their shares, the largest first."""
        return dict(self._ranked()[: self._most])

    @property
    def limit(self) -> float:
        """The most that a key which is not tracked may have, as a share of all tuples; 1 while nothing is known."""
        if not self._batches:
            return 1.0
        width = sum(batch.width for batch in self._batches) / self.offered
        return width + max([width, *(share for _, share in self._ranked()[self._most : self._most + 1])])

    def _ranked(self) -> list[tuple[int, float]]:
        offered, sums = self.offered, defaultdict[int, float](float)
        for batch in self._batches:
            for key, tuples in batch.tuples.items():
                sums[key] += tuples
        return sorted(
            ((key, tuples / offered) for key, tuples in sums.items() if tuples), key=lambda one: (-one[1], one[0])
        )
