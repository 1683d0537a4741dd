"""Which keys send how much, from two things that every batch tells in bounded space.

- *Points*: the keys (as hashes) at L evenly spaced ranks of the batch's tuples in the order of their key. A key with a
  share p of the tuples has p L of the points, give or take one. So a key with two points has more than 1/L of the
  tuples and is *heavy*, and every key with more than 2/L is found.
- *Counts*: the tuples of the keys that were tracked when the batch was cut, exact.

A key is found by its points in one batch, tracked from then on, and so counted exactly in those that follow. At most
`most` keys are tracked, the largest; a million others take no space at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
