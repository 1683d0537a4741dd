"""From what batches tell of their keys to the quotas of those to come. No Spark in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from floodway.job.status.status import KeyPart
from floodway.planning.shares import KeyLoads
from floodway.spark.shed.keys.quotas import ALL_NULL, MOST_KEYS, MOST_NULL, NO_LARGE_KEY, SHOWN, Quotas
from floodway.spark.shed.report import BatchReport
from floodway.units import PPM

NULL_KEY = 0
"""What `key_columns.key_hash` makes of a null."""


class KeyShares:
    """The keys of one shed. `weights` are by the hash of the key; a key without one has 1."""

    warnings: ClassVar = (ALL_NULL, NO_LARGE_KEY)
    """All that `warning` may say."""

    def __init__(self, weights: Mapping[int, float]) -> None:
        self._weights = weights
        self._loads = KeyLoads(MOST_KEYS)
        self._names: dict[int, str] = {}

    def take(self, report: BatchReport, quotas: Quotas | None) -> None:
        """Take in a batch that was cut by these quotas."""
        tracked = () if quotas is None else quotas.keys
        counts = {key: report.key_counts.get(at, 0) for at, key in enumerate(tracked, start=1)}
        self._loads.add(sum(report.key_counts.values()), report.key_points or (), counts)
        if quotas is not None and quotas.asked is not None and report.key_name is not None:
            others = {name for key, name in self._names.items() if key != quotas.asked}
            is_taken = report.key_name in others  # of a long name only the beginning is known
            self._names[quotas.asked] = f"{report.key_name} #{quotas.asked:x}" if is_taken else report.key_name
        tracked_now = self._loads.tracked()
        self._names = {key: name for key, name in self._names.items() if key in tracked_now}

    def quotas(self, keep: float) -> Quotas | None:
        """Fair quotas for a keep over all tuples; None before any key was seen."""
        if not self._loads.offered:
            return None
        loads = self._loads.tracked()
        unnamed = (key for key in list(loads)[:SHOWN] if key not in self._names)
        return Quotas.fair(keep, loads, self._loads.limit, self._weights, next(unnamed, None))

    @property
    def warning(self) -> str | None:
        """What an operator must know of the keys; None: nothing."""
        if not self._loads.offered:
            return None
        loads = self._loads.tracked()
        if not loads:
            return NO_LARGE_KEY
        return ALL_NULL if loads.get(NULL_KEY, 0.0) > MOST_NULL else None

    def shown(self, quotas: Quotas | None) -> tuple[KeyPart, ...]:
        """The heaviest keys whose names are known."""
        keeps = {} if quotas is None else dict(zip(quotas.keys, quotas.keeps, strict=True))
        heaviest = list(self._loads.tracked().items())[:SHOWN]
        return tuple(
            KeyPart(self._names[key], load, keeps.get(key, PPM) / PPM) for key, load in heaviest if key in self._names
        )
