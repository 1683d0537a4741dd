"""Which tuples a decision drops at its keep, from what batches tell: by utility, by key, by position. No Spark in here.

How much is dropped is decided in `control/loop.py`. What the loop of a shed works with stands here too: the options as
they were understood, and what it remembers of each query.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodway.control.base import BATCH_SHARE, Controller
from floodway.job.options.values import Target
from floodway.planning.lag import Positions, left_waiting, skip_positions
from floodway.spark.shed.control_table import EntryBudget
from floodway.spark.shed.keys.quotas import MOST_RARE_PPM, Quotas, rest_ppm
from floodway.spark.shed.open_batches import JOURNALING_US, read_journal
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.control.loop import BatchBudget, KeepDecision, KeepLoop, Patience
    from floodway.job.decision import Mode
    from floodway.job.options.accuracy import Accuracy
    from floodway.job.places import ShedFiles
    from floodway.job.status.parts import BehindPart
    from floodway.job.store.store import Store
    from floodway.planning.windows.window_drop import WindowShape
    from floodway.spark.shed.control_table import Entry
    from floodway.spark.shed.keys.group_keeps import GroupKeeps
    from floodway.spark.shed.keys.key_shares import KeyShares
    from floodway.spark.shed.report import BatchReport, Warnings
    from floodway.spark.shed.source_limit import SourceLimit
    from floodway.spark.shed.utility import Utilities


@dataclass(frozen=True, slots=True)
class ShedSettings:
    """What a user asked of one shed."""

    name: str
    target_seconds: float
    controller: Controller[Any]
    mode: Mode
    salt: int
    headroom: float = 1.0
    by_utility: bool = False
    floor_ppm: int = 0
    window: WindowShape | None = None
    expires_seconds: float | None = None
    """How long a decision holds that nobody renews; None: for ever."""
    shed_after_seconds: float = 0.0
    """How long an overload lasts before anything is dropped."""
    share_by: str | None = None
    """The expression whose values have fair shares; None: none has."""
    weights: tuple[tuple[str, float], ...] = ()
    """Of values of `share_by`, as text; any other has 1."""
    accuracy: Accuracy | None = None
    keep_rare: int = 0
    """Of every value of `rare_by` so many tuples are kept per task of a batch."""
    rare_by: str | None = None
    skip_when_lag: int | None = None
    """The most tuples that may wait in Kafka: the oldest beyond it are skipped; None: any number may."""
    lossless: bool = False
    """Whether nothing is dropped but what is skipped for its age or number (`source_limit.py`)."""
    quantile: float | None = None
    """Of the latencies, that the target is of; None: of their mean."""
    max_age_us: int | None = None
    """Tuples that are older when their batch begins are skipped; None: none is."""

    @property
    def mean_seconds(self) -> float:
        """The mean latency that the target means, as far as it can be said before anything is measured."""
        return Target(self.target_seconds, self.quantile).mean_seconds * self.headroom

    @property
    def accuracy_by(self) -> str | None:
        """The expression whose values are the groups of an accuracy: one group where none is named."""
        return None if self.accuracy is None else self.accuracy.by or "0"

    @property
    def has_quotas(self) -> bool:
        """Whether tuples are kept by their key or group."""
        return self.share_by is not None or self.accuracy is not None


@dataclass
class QueryMemory:
    """What is remembered of one query's run."""

    run: str
    loop: KeepLoop
    last_batch: int | None
    patience: Patience
    decided: KeepDecision | None = None
    started_us: int | None = None
    """When the last batch began; None before the first."""
    latency_seconds: float | None = None
    """Of the last batch; None where it is not known."""
    behind: BehindPart | None = None
    """How far behind a query is that drops nothing, where its source tells."""
    follow: EntryBudget | None = None
    """Of the last decision, if the keep is to follow the batch's own length."""
    first: BatchReport | None = None
    """The last batch, while nothing was decided: the first one of the run."""

    @property
    def keep_ppm(self) -> int | None:
        """What this query asks for; None before its first decision."""
        return None if self.decided is None else min(PPM, max(1, round(self.decided.keep * PPM)))

    def take(self, decided: KeepDecision, ended_us: int, settings: ShedSettings) -> None:
        """Remember what was decided after the batch that ended then; in the first seconds of an overload, to wait."""
        if settings.shed_after_seconds:
            decided = self.patience.hold(decided, ended_us / 1e6)
        self.decided, self.first, self.follow = decided, None, None
        if decided.budget is not None and settings.window is None:
            self.follow = entry_budget(decided.budget, decided.offered_rate, ended_us)


def source_limit_of(settings: ShedSettings, files: ShedFiles) -> SourceLimit | None:
    """Of a shed that drops nothing; None for any other, which needs none of it."""
    if not settings.lossless:
        return None
    from floodway.spark.shed.source_limit import SourceLimit

    max_age = None if settings.max_age_us is None else settings.max_age_us / 1e6
    return SourceLimit(files, settings.mean_seconds, max_age)


AT_ONCE_US = 100_000
"""A batch that begins within that after the end of the one before has waited neither for a trigger nor for data."""


def first_follow(report: BatchReport, settings: ShedSettings, before: Entry) -> EntryBudget | None:
    """Budget, rate and base time after a run's first batch, often a slow one, which tells nothing of costs.

    What the last run decided goes on from its end. Where nobody has decided and the job was down, what came within
    `max_age` tells the rate r. The next batch is long, as the first one was; of what comes meanwhile the one after it
    may have what comes in the time of a batch at the target, r T / 1.5: a job that keeps up has the capacity for that.
    """
    if before.budget is not None and before.rate is not None:
        return EntryBudget(before.budget, before.rate, report.ended_us)
    fresh = report.offered - report.skipped - report.passed_over
    if settings.max_age_us is None or settings.shed_after_seconds or report.backlog or not report.skipped or not fresh:
        return None
    rate = fresh / settings.max_age_us * 1e6
    return EntryBudget(rate * settings.mean_seconds / BATCH_SHARE, rate, report.ended_us)


def second_follow(report: BatchReport, journal: Store | None, settings: ShedSettings) -> EntryBudget | None:
    """What the third batch of a run follows, from the first one's length P1; None while the second one is not begun.

    The second batch, should it take e, processes what came within P1 and so would need e * e / P1 for what comes
    meanwhile. Of that T / 1.5 are there: the keep is 1 for e = sqrt(P1 T / 1.5), a quarter for twice that, and in
    between on a straight line (`control/loop.py`). No cost and no rate is needed. But the second batch must have begun
    at once: a query that waits for its trigger or for data is offered more than came within P1.
    """
    holds = settings.shed_after_seconds or settings.lossless or settings.window is not None or report.backlog
    journaled = None if holds or not report.offered or journal is None else read_journal(journal, report.batch)
    if journaled is None or not journaled.begun or journaled.begun[0] > report.ended_us + AT_ONCE_US:
        return None
    period = settings.mean_seconds / BATCH_SHARE
    fits_us = round(max(period, math.sqrt(report.seconds * period)) * 1e6)
    return EntryBudget(1.0, 1e6 / fits_us, report.ended_us + 2 * fits_us // 3, surge=3.0)


def follow_second(
    queries: Iterable[QueryMemory], journal: Callable[[str], Store | None], settings: ShedSettings, now_us: int
) -> bool:
    """Let every run of which nothing is decided follow its second batch; whether one did now.

    What has not been journaled by then has not begun at once, and is not looked for any more.
    """
    follows = False
    for query in queries:
        first = query.first
        if first is not None and query.follow is None:
            query.follow = second_follow(first, journal(first.query), settings)
            follows |= query.follow is not None
            query.first = first if now_us < first.ended_us + JOURNALING_US else None
    return follows


def entry_budget(budget: BatchBudget, rate: float, ended_us: int) -> EntryBudget:
    """What a controller allows after the batch that ended then."""
    return EntryBudget(budget.tuples, rate, ended_us + round(budget.delay_seconds * 1e6), budget.surge)


class RareShare:
    """Which share of the tuples are the first of their keys, over the last batches.

    >>> share = RareShare()
    >>> share.add(first=50, offered=1000)
    >>> share.ppm
    50000
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque(maxlen=3)

    def add(self, first: int, offered: int) -> None:
        """Take in a batch; one without tuples says nothing."""
        if offered > 0:
            self._batches.append((first, offered))

    @property
    def ppm(self) -> int:
        """The share in ppm, a little below 1 at most; 0 while nothing is known."""
        offered = sum(offered for _, offered in self._batches)
        return min(MOST_RARE_PPM, PPM * sum(first for first, _ in self._batches) // max(offered, 1))


@dataclass
class Chooser:
    """Fills in an entry what it keeps.

    `keys` are the shares by key, `source_limit` is how much a batch takes, if asked for.
    """

    settings: ShedSettings
    keys: KeyShares | None = None
    skip: Positions | None = None
    source_limit: SourceLimit | None = None
    rare: RareShare = field(default_factory=RareShare)
    _utilities: Utilities | None = None
    _begun_us: dict[str, int] = field(default_factory=dict)
    """When the last batch of each query began."""

    groups: GroupKeeps | None = field(default=None, init=False)
    """What an accuracy needs, if the settings ask for one."""

    def __post_init__(self) -> None:
        if self.settings.accuracy is not None:
            from floodway.spark.shed.keys.group_keeps import GroupKeeps

            self.groups = GroupKeeps(self.settings.accuracy)
        if self.settings.by_utility:
            from floodway.spark.shed.utility import Utilities

            self._utilities = Utilities()

    def take(self, report: BatchReport, cut_by: Entry) -> BatchReport:
        """Take in a batch that `cut_by` was written for; the batch as a controller is to see it."""
        if self._utilities is not None:
            self._utilities.add(report.utilities, report.offered)
        self.rare.add(report.first, report.offered - report.stale - report.behind)
        if self.keys is not None and report.seq == cut_by.seq:
            self.keys.take(report, cut_by.quotas)
        if self.groups is not None and report.seq == cut_by.seq:
            self._take_sample(self.groups, report, cut_by)
        if self.settings.skip_when_lag is None:
            return report
        self.skip = skip_positions(report.waiting, self.settings.skip_when_lag, self.skip)
        if report.backlog is None or cut_by.mode != "enforce":
            return report
        return replace(report, backlog=left_waiting(report.waiting, self.skip))

    def look_behind(
        self, report: BatchReport, decided: KeepDecision | None, mode: Mode, warnings: Warnings
    ) -> BehindPart | None:
        """How far behind a query is that drops nothing, after this batch; None where that is not known."""
        return None if self.source_limit is None else self.source_limit.take(report, decided, mode, warnings)

    def completed(self, entry: Entry) -> Entry:
        """The entry with what it keeps at its keep."""
        if self.source_limit is not None:
            self.source_limit.follow(entry.mode)
        rest = rest_ppm(entry.keep_ppm, self.rare.ppm) / PPM
        entry = replace(entry, threshold=None, tie_ppm=PPM, rare_ppm=self.rare.ppm, skip=self.skip)
        if self._utilities is not None and entry.keep_ppm < PPM:
            threshold = self._utilities.threshold(rest, self.settings.floor_ppm / PPM)
            if threshold is not None:
                entry = replace(entry, threshold=threshold.value, tie_ppm=threshold.tie_ppm)
        if self.keys is not None:
            entry = replace(entry, quotas=self.keys.quotas(rest) or entry.quotas)
        return entry if self.groups is None else self._accurate(self.groups, entry, rest)

    def _take_sample(self, groups: GroupKeeps, report: BatchReport, cut_by: Entry) -> None:
        from floodway.spark.shed.keys.group_keeps import points_of

        before, self._begun_us[report.query] = self._begun_us.get(report.query), report.started_us
        seconds = None if before is None or before >= report.started_us else (report.started_us - before) / 1e6
        quotas = cut_by.quotas or Quotas()
        keep = PPM if report.keep_ppm is None else report.keep_ppm
        aimed = rest_ppm(cut_by.keep_ppm, cut_by.rare_ppm)
        points = points_of(report.sample, report.sampled, quotas.sizes)
        groups.take(points, seconds, quotas, keep, aimed)

    def _accurate(self, groups: GroupKeeps, entry: Entry, rest: float) -> Entry:
        """The entry with keeps by group. A keep that is needed for accuracy does not follow the batch's length."""
        quotas, keep = groups.quotas(rest)
        if entry.mode == "off" or not groups.is_firm:
            return replace(entry, quotas=quotas)
        raised = math.ceil(self.rare.ppm + keep * (PPM - self.rare.ppm)) if keep > rest else entry.keep_ppm
        return replace(entry, quotas=quotas, keep_ppm=min(PPM, raised)).following(None)
