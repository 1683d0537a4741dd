"""Numba behind one name: `compiled(function)` for the few loops that NumPy's cost per call would dominate.

The machine code is kept in numba's cache, so that only the first call after an installation waits for the compiler.
Modules with compiled loops (`*_kernel.py`) are imported where they are first needed: loading numba takes half a
second, which most commands can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as machine code, made at its first call. It may call other compiled functions."""
    try:
        made: Callable[..., Any] = numba.njit(cache=True)(function)
    except RuntimeError:  # no folder that numba may write to: compile in every process
        made = numba.njit(function)
    return made
