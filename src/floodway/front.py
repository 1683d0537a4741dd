"""Names that a package offers without loading what they need: each module is imported when its name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import ismodule
from typing import Any


def lazy(package: str, modules: Mapping[str, Iterable[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that offers names of these modules.

    A module that is listed without names is offered itself, under the last part of its name.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    whole = {module.rpartition(".")[2]: module for module, names in modules.items() if not names}

    def getattr_(name: str) -> Any:
        if name not in homes and name not in whole:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return import_module(whole[name]) if name in whole else getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            from floodway.errors import missing_extra

            raise (missing_extra(error) or error) from None

    def dir_() -> list[str]:
        own = vars(sys.modules[package]).items()
        return sorted({*homes, *whole, *(name for name, value in own if name[:2] == "__" or ismodule(value))})

    return getattr_, dir_
