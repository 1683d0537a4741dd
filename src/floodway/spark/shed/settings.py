"""What the loop of a shed works with: the options as they were understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodway.control.base import Controller
from floodway.job.decision import Mode
from floodway.planning.window_drop import WindowShape


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
    keep_rare: int = 0
    """Of every value of `rare_by` so many tuples are kept per task of a batch."""
    rare_by: str | None = None
    skip_when_lag: int | None = None
    """The most tuples that may wait in Kafka: the oldest beyond it are skipped; None: any number may."""
    max_age_us: int | None = None
    """Tuples that are older when their batch begins are skipped; None: none is."""
