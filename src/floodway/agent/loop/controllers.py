"""The controllers of a process by name, in units of work (seconds of nominal CPU) for batches of one period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodway.control.base import Controller
from floodway.control.pid import PidConfig
from floodway.control.red import RedConfig
from floodway.control.registry import make_controller

LEAST_SCALE = 1e-3
"""The least capacity that is planned for, of the nominal one."""


def work_controller(name: str, target_seconds: float, period_seconds: float) -> Controller[Any]:
    """A controller in units of work (seconds of nominal CPU) for batches of this period.

    Queue laws keep their papers' proportions: the queue may hold two periods of work, so that half full is one batch.
    """
    common: dict[str, object] = {"nominal": period_seconds, "floor": LEAST_SCALE * period_seconds}
    limit = 2.0 * period_seconds
    unit = limit / PidConfig().queue_limit
    options: Mapping[str, Mapping[str, object]] = {
        "batch": {"target_seconds": target_seconds, "cost_guess": 1.0},
        "latency": {"target_seconds": target_seconds, "tick_seconds": period_seconds, "delay_ticks": 2.0},
        "aurora": {"target_seconds": target_seconds, "tick_seconds": period_seconds},
        "tu": {"target_seconds": target_seconds, "period_seconds": period_seconds},
        "pid": {
            "queue_limit": limit,
            **{gain: unit * getattr(PidConfig(), gain) for gain in ("k_p", "k_i", "k_d")},
        },
        "red": {
            "min_threshold": unit * RedConfig().min_threshold,
            "max_threshold": unit * RedConfig().max_threshold,
        },
    }
    return make_controller(name, **common, **options.get(name, {}))
