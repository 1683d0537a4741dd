"""An accuracy over many trials on known data: the bounds hold, and what is said to be held is. No Spark runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from floodway.job.options.accuracy import Accuracy, Preference
from floodway.planning.estimates.accuracy import Numbers
from floodway.planning.estimates.group_sample import Points, Sizes
from floodway.spark.measure.estimates import sum_estimate
from floodway.spark.shed.keys.group_keeps import GroupKeeps
from floodway.spark.shed.keys.quotas import Quotas
from floodway.units import PPM
from tests.effort import tries

TRIALS = tries(500)
BATCHES = 3
WITHIN = 0.05


@dataclass
class Data:
    """The tuples of a batch, in the order of their groups."""

    groups: np.ndarray
    values: Numbers

    def points(self, random: np.random.Generator, sizes: tuple[float, ...]) -> Points:
        """As Spark delivers them: evenly spaced among what was sampled."""
        known = Sizes(*sizes) if sizes else None
        chance = np.ones(len(self.values)) if known is None else known.chance(self.values)
        chosen = np.flatnonzero(random.random(len(self.values)) < chance)
        at = chosen[((np.arange(1000) + 0.5) * len(chosen) / 1000).astype(int)]
        return Points(self.groups[at], self.values[at], len(chosen), known)


def data(*, few: bool) -> Data:
    """2% of the groups with 80% of the value, or with 20% of it."""
    random = np.random.default_rng(11)
    heavy, count = (2, 100) if few else (1, 50)
    sizes = np.where(np.arange(count) < heavy, 6000 if few else 20_000, 60 if few else 400)
    groups = np.repeat(np.arange(count), sizes)
    values = random.lognormal(0.0, 0.5, len(groups))
    share, of_heavy = 0.8 if few else 0.2, values[groups < heavy].sum() / values.sum()
    return Data(groups, values * np.where(groups < heavy, share / of_heavy, (1.0 - share) / (1.0 - of_heavy)))


@pytest.mark.parametrize("prefer", ["accuracy", "latency"])
@pytest.mark.parametrize("few", [True, False], ids=["few groups", "many groups"])
def test_bounds_hold_and_what_is_reported_as_held_is(few: bool, prefer: Preference) -> None:
    random, known = np.random.default_rng(12), data(few=few)
    truth = np.bincount(known.groups, weights=known.values)
    share = 0.75
    order = np.argsort(-truth)
    covered = order[: int(np.searchsorted(np.cumsum(truth[order]), share * truth.sum())) + 1]
    accuracy = Accuracy("sum(price)", by="page", within=WITHIN, share=share, prefer=prefer)
    keep, held, bounds_right, bounds, errors = 0.1, 0, 0, 0, []
    for _ in range(TRIALS):
        found, quotas, kept = GroupKeeps(accuracy), Quotas(), 1.0
        for _ in range(BATCHES):
            found.take(known.points(random, quotas.sizes), 1.0, quotas, round(kept * PPM), round(kept * PPM))
            quotas, kept = found.quotas(keep)
        own = dict(zip(quotas.keys, quotas.keeps, strict=True))
        keeps = np.array([own.get(group, quotas.others_ppm) for group in range(len(truth))])[known.groups] / PPM
        stays = random.random(len(known.values)) < keeps
        # The batch is cut by the last decision, and reported.
        found.take(known.points(random, quotas.sizes), 1.0, quotas, round(kept * PPM), round(kept * PPM))
        part = found.part(3.0, 2.0)
        for group in random.choice(covered, size=2):
            mine = stays & (known.groups == group)
            estimate = sum_estimate(known.values[mine], 1.0 / keeps[mine])
            bounds += 1
            bounds_right += estimate.holds(truth[group])
            if part.held:
                held += 1
                errors.append(abs(estimate.value - truth[group]) / truth[group])
    assert bounds_right >= 0.93 * bounds
    if prefer == "accuracy":
        assert kept > keep and held >= 0.9 * bounds and part.late_seconds == 1.0
    else:
        assert kept == keep and held == 0 and part.bound is not None and part.bound > WITHIN
    assert sum(error <= WITHIN for error in errors) >= 0.95 * len(errors)
    assert part.needed_keep is not None and part.needed_keep < 0.6
