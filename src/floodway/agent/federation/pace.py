"""How often a participant does what, and how long it waits for others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things happen, and how long they may take, in seconds.

    `lease` is renewed three times in its length; an origin waits `margin` beyond it, for clocks that differ. After a
    move that failed nothing is offered for `failed_move`.
    """

    tick: float = 0.2
    measure: float = 1.0
    lease: float = 10.0
    margin: float = 2.0
    bill: float = 10.0
    message: float = 2.0
    move: float = 90.0
    failed_move: float = 20.0
    patience: float = 10.0
