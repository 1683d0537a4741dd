"""All controllers by name, and the one way to make one from options (a file, a command line)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from floodway.control.base import Controller
from floodway.errors import InputError, suggestion


@dataclass(frozen=True, slots=True)
class Factory:
    """Makes one kind of controller: the module of the law, its config type, and the class that takes it.

    A law's module is loaded when the law is used: a job needs one of them.
    """

    module: str
    config_name: str
    controller_name: str

    @property
    def config(self) -> type[Any]:
        """The type of the law's options."""
        found: type[Any] = getattr(import_module(self.module), self.config_name)
        return found

    @property
    def controller(self) -> Callable[[Any], Controller[Any]]:
        """The law."""
        found: Callable[[Any], Controller[Any]] = getattr(import_module(self.module), self.controller_name)
        return found

    def __call__(self, name: str, options: Mapping[str, object]) -> Controller[Any]:
        known = [f.name for f in fields(self.config)]
        for key in options:
            if key not in known:
                raise InputError(f"{name}.{key} is not an option of controller {name!r}", hint=suggestion(key, known))
        if "target_seconds" in known and "target_seconds" not in options:
            raise InputError(f"{name}.target_seconds is missing", hint="Give the latency target in seconds.")
        return self.controller(self.config(**options))


_FACTORIES: Mapping[str, Factory] = {
    "aurora": Factory("floodway.control.aurora", "AuroraConfig", "AuroraController"),
    "batch": Factory("floodway.control.batch", "BatchConfig", "BatchLatencyController"),
    "gradient": Factory("floodway.control.gradient", "GradientConfig", "GradientController"),
    "latency": Factory("floodway.control.latency", "LatencyConfig", "LatencyController"),
    "pi": Factory("floodway.control.pi", "PiConfig", "PiController"),
    "pid": Factory("floodway.control.pid", "PidConfig", "PidController"),
    "red": Factory("floodway.control.red", "RedConfig", "RedController"),
    "tu": Factory("floodway.control.tu", "TuConfig", "TuController"),
    "vegas": Factory("floodway.control.vegas", "VegasConfig", "VegasController"),
}


def controllers() -> Mapping[str, Factory]:
    """Name to factory, in alphabetical order."""
    return dict(_FACTORIES)


def make_controller(name: str, **options: object) -> Controller[Any]:
    """The controller of this name with these options; unknown names and keys are refused with a hint.

    >>> make_controller("latency", target_seconds=2.0).name
    'latency'
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        raise InputError(f"controller {name!r} is not known", hint=suggestion(name, _FACTORIES))
    return factory(name, options)


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
