"""An accuracy at the source: what each group of a batch must keep, by exact moments of the tuples that are cut.

The columns are read when the batch is cut (`keys.py`), so nothing is sampled. Where results are about windows, a group
of a window is taken to be as many times as large as the window is longer than the span in which the batch arrived.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.job.options.accuracy import Accuracy
from floodway.planning.estimates.accuracy import Moments, Numbers, needed_keeps, widths
from floodway.planning.estimates.group_sample import strata
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.shed.keys.quotas import MOST_KEYS
from floodway.spark.source.offsets import KeyRule
from floodway.units import PPM

UNKNOWN_BOUND = -1
WIDEST = 1_000.0
"""Times the value: bounds that are wider say nothing."""


class GroupTally:
    """Moments by group of the tuples of a batch, piece by piece."""

    def __init__(self, accuracy: Accuracy) -> None:
        self.accuracy = accuracy
        self._sums: dict[int, Numbers] = {}
        self._first_us, self._last_us = 1 << 62, -(1 << 62)

    def add(self, rows: pa.RecordBatch, groups: NDArray[np.int64] | None) -> None:
        """Count a piece; `groups` are the hashes of its groups, None if all tuples are one."""
        values = self._values(rows)
        keys, at = np.unique(np.zeros(len(values), np.int64) if groups is None else groups, return_inverse=True)
        powers = [np.ones(len(values)), values, values**2, values**3]
        for key, sums in zip(keys.tolist(), np.stack([np.bincount(at, p, len(keys)) for p in powers], 1), strict=True):
            self._sums[key] = self._sums.get(key, 0.0) + sums
        arrivals = rows.column(ARRIVAL).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).drop_null().to_numpy()
        if len(arrivals):
            self._first_us = min(self._first_us, int(arrivals.min()))
            self._last_us = max(self._last_us, int(arrivals.max()))

    def _values(self, rows: pa.RecordBatch) -> Numbers:
        """What is added up; null is 0."""
        if self.accuracy.argument == "*":
            return np.ones(rows.num_rows)
        column = rows.column(self.accuracy.argument)
        if self.accuracy.function == "count":
            return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.float64)
        check_numbers(self.accuracy, column.type)
        found: Numbers = np.nan_to_num(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        return found

    @property
    def seconds(self) -> float:
        """In which the tuples arrived."""
        return max(0.0, (self._last_us - self._first_us) / 1e6)

    def rule(self, rule: KeyRule) -> KeyRule:
        """The rule with the keeps of these groups, for the keep over all tuples that it has for them now."""
        accuracy, keep = self.accuracy, rule.others_ppm / PPM
        names = np.array(list(self._sums), dtype=np.int64)
        moments = Moments(*np.stack(list(self._sums.values()), axis=1))
        shares = moments.tuples / moments.tuples.sum()
        over = accuracy.over_seconds
        if over is not None and self.seconds > 0.0:
            moments = moments.scaled(over / self.seconds)
        weight = moments.weight(accuracy.function)
        order = np.argsort(-weight, kind="stable")
        covered = np.zeros(len(order), dtype=bool)
        covered[order] = np.cumsum(weight[order]) - weight[order] < accuracy.share * weight.sum()
        wanted = moments.of(accuracy.function)
        needs = needed_keeps(wanted.where(covered), accuracy.within)
        firm = accuracy.prefer == "accuracy"
        found = strata(keep, names[covered], shares[covered], needs, most=MOST_KEYS, firm=firm)
        own = {int(name): _ppm(share) for name, share in zip(found.names, found.keeps, strict=True)}
        others = _ppm(found.others)
        keeps = np.array([own.get(int(name), others) for name in names]) / PPM
        bound = float(np.max(np.where(keeps >= 1.0, 0.0, widths(wanted, keeps))[covered], initial=0.0))
        told = round(bound * PPM) if bound < WIDEST else UNKNOWN_BOUND
        said = (int(covered.sum()), told, round(found.needed * PPM), rule.others_ppm)
        if accuracy.by is None:  # one group: all tuples
            return replace(rule, others_ppm=max([others, *own.values()]), accuracy=said)
        return replace(
            rule, share_by=accuracy.by, keys=tuple(own), keeps=tuple(own.values()), others_ppm=others, accuracy=said
        )


def check_numbers(accuracy: Accuracy, kind: pa.DataType) -> None:
    """InputError for the sum or average of what is no number."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InputError(
            f"--accuracy: {accuracy.argument} is of type {kind}, which has no {accuracy.function}",
            hint="Name a column of numbers",
        )


def _ppm(share: float) -> int:
    return int(min(PPM, max(1, np.ceil(min(share, 1.0) * PPM))))
