"""Waiting for a state, once for all tests: the bound is for what is broken, not a speed that is expected."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300
LONGEST_PAUSE_SECONDS = 0.2


def wait_until(
    condition: Callable[[], object],
    what: str = "it",
    *,
    meanwhile: Callable[[], object] | None = None,
    told: Callable[[], object] = lambda: "",
    pause_seconds: float = 0.02,
) -> None:
    """Return when the condition holds; `meanwhile` is called while it does not, `told` if it never does.

    A test that only looks does so less and less often: a look may read a whole ledger, and others need the CPU.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS:g} s: {told()}")
        if meanwhile is None:
            pause_seconds = min(1.3 * pause_seconds, LONGEST_PAUSE_SECONDS)
        else:
            meanwhile()
        time.sleep(pause_seconds)
