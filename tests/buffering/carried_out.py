"""What becomes of a cursor when a decision is carried out by counts, tuple after tuple."""

from __future__ import annotations

from floodway.buffering.cursors import QueueDecision
from floodway.buffering.ranges import Cursor, Range


def carried_out(decision: QueueDecision, cursor: Cursor, tail: int) -> tuple[tuple[Range, ...], Cursor]:
    """The ranges to read on a log that ends at `tail`, and the cursor after."""
    cursor = cursor.thin(decision.thin_ppm).extend(tail, keep_ppm=decision.keep_ppm)
    _, cursor = cursor.advance(min(decision.expired + decision.front_dropped, cursor.waiting))
    return cursor.advance(min(decision.take, cursor.waiting))
