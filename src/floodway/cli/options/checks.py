"""Options that are looked at before anything slow starts: numbers in their range, and paths that can be written."""

from __future__ import annotations

import math
from pathlib import Path

from floodway.errors import InputError


def above_zero(option: str, value: float | None, example: str) -> None:
    """Refuse what is not a positive, finite number; an option that was not given passes.

    >>> above_zero("--target", 2.0, "2")
    """
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} {value:g} is not above 0", hint=f"Give a number such as {example}")


def writable(option: str, path: Path | None) -> None:
    """Refuse a file that could not be written at the end: its folder is missing, or it is a folder itself."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder", hint="Name a file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}", hint="Make it first")


def usable_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that cannot be one, because a file has that name or lies above it."""
    if path is None:
        return
    for place in (path.absolute(), *path.absolute().parents):
        if place.exists():
            if not place.is_dir():
                raise InputError(f"{option} {path}: {place} is a file", hint="Give another folder")
            return
