"""The rows of a participant's journal: moves, and entries of payments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from floodway.contracts.payment import Payment

Role = Literal["giver", "taker"]
State = Literal["intended", "stopped", "asked", "taking", "done", "failed"]
OPEN: tuple[State, ...] = ("intended", "stopped", "asked", "taking")


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One move as this side saw it; `units` and `epochs` by fragment, `seconds` by phase (stop, hand_over, start).

    `ended` is when nothing more was owed, `served` until when the taker has billed.
    """

    id: str
    role: Role
    giver: str
    taker: str
    price: float
    units: Mapping[str, float]
    epochs: Mapping[str, int]
    state: State
    at: float
    ended: float | None = None
    served: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def partner(self) -> str:
        """The other side."""
        return self.taker if self.role == "giver" else self.giver


@dataclass(frozen=True, slots=True)
class BookedEntry:
    """A payment with the time it is for (`start` to `entry.at`), and the delay and the share kept that were reported.

    `agreed` says that both sides have it, `disputed` why the giver refused it last.
    """

    entry: Payment
    move: str
    start: float
    delay_seconds: float | None = None
    agreed: bool = False
    keep: float = 1.0
    disputed: str = ""


def fragment_of(booked: BookedEntry) -> str:
    """The fragment that an entry is for: `MOVE/FRAGMENT/...`."""
    return booked.entry.id.removeprefix(f"{booked.move}/").partition("/")[0]


def number_of(move: str) -> int:
    """The number in the id of a move or an offer: `GIVER/NUMBER`."""
    return int(move.rpartition("/")[2])
