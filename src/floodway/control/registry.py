"""All controllers by name, and the one way to make one from options (a file, a command line)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import Controller
from floodway.control.batch import BatchConfig, BatchLatencyController
from floodway.control.gradient import GradientConfig, GradientController
from floodway.control.latency import LatencyConfig, LatencyController
from floodway.control.pi import PiConfig, PiController
from floodway.control.pid import PidConfig, PidController
from floodway.control.red import RedConfig, RedController
from floodway.control.tu import TuConfig, TuController
from floodway.control.vegas import VegasConfig, VegasController
from floodway.errors import InputError


@dataclass(frozen=True, slots=True)
class Factory:
    """Makes one kind of controller: its config type, and the class that takes it."""

    config: type[Any]
    controller: Callable[[Any], Controller[Any]]

    def __call__(self, name: str, options: Mapping[str, object]) -> Controller[Any]:
        known = [f.name for f in fields(self.config)]
        for key in options:
            if key not in known:
                raise InputError(
                    f"{name}.{key} is not an option of controller {name!r}", hint=_did_you_mean(key, known)
                )
        if "target_seconds" in known and "target_seconds" not in options:
            raise InputError(f"{name}.target_seconds is missing", hint="Give the latency target in seconds.")
        return self.controller(self.config(**options))


_FACTORIES: Mapping[str, Factory] = {
    "aurora": Factory(AuroraConfig, AuroraController),
    "batch": Factory(BatchConfig, BatchLatencyController),
    "gradient": Factory(GradientConfig, GradientController),
    "latency": Factory(LatencyConfig, LatencyController),
    "pi": Factory(PiConfig, PiController),
    "pid": Factory(PidConfig, PidController),
    "red": Factory(RedConfig, RedController),
    "tu": Factory(TuConfig, TuController),
    "vegas": Factory(VegasConfig, VegasController),
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
        raise InputError(f"controller {name!r} is not known", hint=_did_you_mean(name, list(_FACTORIES)))
    return factory(name, options)


def _did_you_mean(given: str, known: list[str]) -> str:
    near = get_close_matches(given, known, n=1)
    choices = f"Choose one of {', '.join(known)}"
    return f"Did you mean {near[0]!r}? {choices}" if near else choices
