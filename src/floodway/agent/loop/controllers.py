"""The controllers of a process by name, in units of work (seconds of nominal CPU) for batches of one period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodway.control.base import Controller
from floodway.control.registry import make_controller

LEAST_SCALE = 1e-3
"""The least capacity that is planned for, of the nominal one."""


def work_controller(name: str, target_seconds: float, period_seconds: float) -> Controller[Any]:
    """A controller in units of work (seconds of nominal CPU) for batches of this period.

    Queue laws keep their papers' proportions: the queue may hold two periods of work, so that half full is one batch.
    """
    common: dict[str, object] = {"nominal": period_seconds, "floor": LEAST_SCALE * period_seconds}
    options: Mapping[str, Mapping[str, object]] = {
        "batch": {"target_seconds": target_seconds, "cost_guess": 1.0},
        "latency": {"target_seconds": target_seconds, "tick_seconds": period_seconds, "delay_ticks": 2.0},
        "aurora": {"target_seconds": target_seconds, "tick_seconds": period_seconds},
        "tu": {"target_seconds": target_seconds, "period_seconds": period_seconds},
    }
    own = _queue_law(name, 2.0 * period_seconds) if name in ("pid", "red") else options.get(name, {})
    return make_controller(name, **common, **own)


def _queue_law(name: str, limit: float) -> dict[str, object]:
    """The options of PID or RED' for a queue of this length: what its paper has, in proportion."""
    from floodway.control.pid import PidConfig
    from floodway.control.red import RedConfig

    pid, red = PidConfig(), RedConfig()
    unit = limit / pid.queue_limit
    if name == "red":
        return {"min_threshold": unit * red.min_threshold, "max_threshold": unit * red.max_threshold}
    return {"queue_limit": limit, "k_p": unit * pid.k_p, "k_i": unit * pid.k_i, "k_d": unit * pid.k_d}
