"""Which windows a decision about windows keeps whole, one at a time."""

from __future__ import annotations

from floodway.planning.windows.window_keeps import WindowKeeps


def is_whole(keeps: WindowKeeps, window_start_us: int) -> bool:
    """Whether all of the window that starts there is kept."""
    start = keeps.shape.batch_start(window_start_us)
    return keeps.shape.kept(start, keeps.keep_ppm(start), keeps.salt)
