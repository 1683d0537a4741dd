"""Which tuples a decision drops at its keep, from what batches tell: by utility, by key, by position. No Spark in here.

How much is dropped is decided in `control/keep_loop.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from floodway.planning.lag import Positions, left_waiting, skip_positions
from floodway.spark.shed.control_table import PPM, Entry
from floodway.spark.shed.key_shares import KeyShares
from floodway.spark.shed.rare import RareShare, rest_ppm
from floodway.spark.shed.report import BatchReport
from floodway.spark.shed.settings import ShedSettings
from floodway.spark.shed.utility import Utilities


@dataclass
class Chooser:
    """Fills in an entry what it keeps. `keys` are the shares by key, if the settings ask for them."""

    settings: ShedSettings
    keys: KeyShares | None = None
    skip: Positions | None = None
    utilities: Utilities = field(default_factory=Utilities)
    rare: RareShare = field(default_factory=RareShare)

    def take(self, report: BatchReport, cut_by: Entry) -> BatchReport:
        """Take in a batch that `cut_by` was written for; the batch as a controller is to see it."""
        self.utilities.add(report.utilities, report.offered)
        self.rare.add(report.first, report.offered - report.stale - report.behind)
        if self.keys is not None and report.seq == cut_by.seq:
            self.keys.take(report, cut_by.quotas)
        if self.settings.skip_when_lag is None:
            return report
        self.skip = skip_positions(report.waiting, self.settings.skip_when_lag, self.skip)
        if report.backlog is None or cut_by.mode != "enforce":
            return report
        return replace(report, backlog=left_waiting(report.waiting, self.skip))

    def completed(self, entry: Entry) -> Entry:
        """The entry with what it keeps at its keep."""
        rest = rest_ppm(entry.keep_ppm, self.rare.ppm) / PPM
        entry = replace(entry, threshold=None, tie_ppm=PPM, rare_ppm=self.rare.ppm, skip=self.skip)
        if self.settings.by_utility and entry.keep_ppm < PPM:
            threshold = self.utilities.threshold(rest, self.settings.floor_ppm / PPM)
            if threshold is not None:
                entry = replace(entry, threshold=threshold.value, tie_ppm=threshold.tie_ppm)
        if self.keys is not None:
            entry = replace(entry, quotas=self.keys.quotas(rest) or entry.quotas)
        return entry
