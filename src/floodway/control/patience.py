"""Time for more capacity to come before anything is dropped: an overload must last that long, without a pause.

An autoscaler needs a minute or two to add machines. Until then the source holds what waits, and results are late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from floodway.control.keep_loop import KeepDecision


@dataclass
class Patience:
    """Holds drops back for `seconds` of overload; `since_seconds` is when the present one began, None without one."""

    seconds: float
    since_seconds: float | None = None

    def hold(self, decided: KeepDecision, now_seconds: float) -> KeepDecision:
        """The decision, or while the overload is young one that keeps everything.

        A budget bounds also a batch that is to keep all, so it waits with the drops.
        """
        if decided.keep >= 1.0:
            self.since_seconds = None
            return replace(decided, budget=None)
        if self.since_seconds is None:
            self.since_seconds = now_seconds
        lasted = now_seconds - self.since_seconds
        if lasted >= self.seconds:
            return decided
        return replace(decided, keep=1.0, budget=None, held_seconds=lasted)
