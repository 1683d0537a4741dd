"""What the loop of a shed works with: the options as they were understood, and what it remembers of each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodway.control.base import Controller
from floodway.control.loop import KeepDecision, KeepLoop, Patience
from floodway.job.decision import Mode
from floodway.job.options.values import Target
from floodway.job.status.parts import BehindPart
from floodway.spark.shed.control_table import EntryBudget
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy
    from floodway.planning.windows.window_drop import WindowShape
    from floodway.spark.shed.report import BatchReport


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
