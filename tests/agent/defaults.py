"""Other defaults for what a test builds through several hands."""

from __future__ import annotations

import pytest


def set_default(patch: pytest.MonkeyPatch, kind: type, name: str, value: object) -> None:
    """Give a keyword argument of a class another default for as long as the patch lasts."""
    defaults = vars(kind)["__init__"].__kwdefaults__
    assert name in defaults
    patch.setitem(defaults, name, value)
