"""From the samples of batches to the keeps of groups that an accuracy needs. No Spark in here.

A sampled tuple is one whole number of 53 bits, which survives doubles and JSON. 29 bits are of the group's hash; then
comes the value, to a relative error of 0.01%:

     1 bit    1 for x < 0
    23 bits   8192 (log2 |x| + 512), 0 for x = 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from floodway.job.options.accuracy import Accuracy
from floodway.job.status.parts import AccuracyPart
from floodway.planning.estimates.accuracy import needed_keeps, widths
from floodway.planning.estimates.group_sample import Groups, GroupSample, Points, Sizes, Strata, strata
from floodway.spark.shed.keys.quotas import MOST_KEYS, Quotas
from floodway.units import PPM

GROUP_BITS = 29
LOG_STEPS, LEAST_LOG = 8192, 512
MAGNITUDES = 1 << 23
VALUES = 2 * MAGNITUDES


def points_of(sample: Sequence[int], sampled: int, sizes: Sequence[float]) -> Points:
    """The points that a batch delivered, which was sampled by these sizes.

    >>> points_of([7 * 2**24 + 8192 * 513], 1, ()).values.round(3)
    array([2.])
    """
    packed = np.asarray(sample, dtype=np.int64)
    code = packed % VALUES
    magnitude = code % MAGNITUDES
    value = np.where(magnitude == 0, 0.0, np.exp2((magnitude + 0.5) / LOG_STEPS - LEAST_LOG))
    known = Sizes(*sizes) if sizes else None
    return Points(packed // VALUES, np.where(code >= MAGNITUDES, -value, value), sampled, known)


DECIDED_ERRORS, REPORTED_ERRORS = 2.0, 1.0
"""By how many standard errors a group is taken to be smaller: more to decide, so that what is decided is held."""

CHANGE = 1.5
"""Factor by which the sample's sizes must be off to be written again."""


class GroupKeeps:
    """The groups of one shed with an accuracy."""

    def __init__(self, accuracy: Accuracy) -> None:
        self._accuracy = accuracy
        self._sample = GroupSample()
        self._found: Groups | None = None
        self._sizes: tuple[float, ...] = ()
        self._bound: float | None = None
        self._strata: Strata | None = None
        self._allowed = 1.0

    @property
    def is_firm(self) -> bool:
        """Whether accuracy is held where latency cannot be."""
        return self._accuracy.prefer == "accuracy"

    def take(self, points: Points, seconds: float | None, cut_by: Quotas, keep_ppm: int, aimed_ppm: int) -> None:
        """Take in the sample of a batch that was cut so; its tuples came in so many seconds, if that is known."""
        over = self._accuracy.over_seconds
        if over is None or seconds is not None:
            self._sample.add(points, seconds or 0.0)
        self._found = self._sample.groups(over)
        sizes = self._sample.sizes()
        if sizes is not None:
            wanted = (sizes.base, sizes.unit)
            changes = [new / old for new, old in zip(wanted, self._sizes or (math.inf, math.inf), strict=True)]
            if not all(1 / CHANGE < change < CHANGE for change in changes):
                self._sizes = wanted
        quotas, others = cut_by.in_batch(keep_ppm, aimed_ppm)
        self._bound = self._widest(dict(quotas), others)

    def quotas(self, keep: float) -> tuple[Quotas, float]:
        """Quotas for a keep over all tuples, and the keep that they come to."""
        self._allowed = keep
        found = self._found
        if found is None:
            # What accuracy needs is not known before the first sample.
            kept = 1.0 if self.is_firm else keep
            return Quotas(sizes=self._sizes), kept
        covered = self._covered(found)
        least = found.smaller(DECIDED_ERRORS).of(self._accuracy.function).where(covered)
        needs = needed_keeps(least, self._accuracy.within)
        shares = found.moments.tuples / max(float(found.moments.tuples.sum()), 1e-300)
        chosen = self._strata = strata(
            keep, found.names[covered], shares[covered], needs, most=MOST_KEYS, firm=self.is_firm
        )
        keeps = (np.ceil(np.minimum(chosen.keeps, 1.0) * PPM) / PPM).tolist()
        raised = max(keep, chosen.keep) if self.is_firm else keep
        names = [int(name) for name in chosen.names]
        others = max(1.0 / PPM, chosen.others)
        return Quotas.of_groups(raised, names, keeps, others, chosen.whole, self._sizes), raised

    def part(self, latency_seconds: float | None, target_seconds: float) -> AccuracyPart:
        """What the status says of it."""
        accuracy, needed = self._accuracy, None if self._strata is None else self._strata.needed
        conflict = needed is not None and needed > self._allowed
        late = None if latency_seconds is None or not conflict else max(0.0, latency_seconds - target_seconds)
        return AccuracyPart(
            aggregate=str(accuracy),
            within=accuracy.within,
            prefer=accuracy.prefer,
            groups=0 if self._found is None else int(np.count_nonzero(self._covered(self._found))),
            bound=self._bound,
            held=None if self._found is None else self._bound is not None and self._bound <= accuracy.within,
            needed_keep=needed,
            allowed_keep=None if self._strata is None else self._allowed,
            late_seconds=late if self.is_firm else None,
        )

    def _covered(self, found: Groups) -> NDArray[np.bool_]:
        """Which groups carry the share of the total, for certain: the largest, each at least as large as it may be."""
        weight = found.moments.weight(self._accuracy.function)
        least = found.smaller(DECIDED_ERRORS).weight(self._accuracy.function)
        order = np.argsort(-weight, kind="stable")
        before = np.cumsum(least[order]) - least[order]
        covered = np.zeros(len(order), dtype=bool)
        covered[order] = before < self._accuracy.share * weight.sum()
        return covered

    def _widest(self, quotas: dict[int, int], others_ppm: int) -> float | None:
        """The widest bounds of the groups that count; None where one of them is not known."""
        if self._found is None:
            return None
        keeps = np.array([quotas.get(int(name), others_ppm) for name in self._found.names]) / PPM
        every = widths(self._found.smaller(REPORTED_ERRORS).of(self._accuracy.function), keeps)
        widest = float(np.max(np.where(keeps >= 1.0, 0.0, every)[self._covered(self._found)], initial=0.0))
        return widest if np.isfinite(widest) and widest < 1e6 else None
