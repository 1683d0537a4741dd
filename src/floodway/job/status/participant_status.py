"""The part of a status that only a participant of a federation has: fragments, contracts, moves, leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ENDED = ("done", "failed")
"""How a move ends; every other state is one on the way."""


@dataclass(frozen=True, slots=True)
class FragmentPart:
    """A part of a query that runs here: CPU-seconds per second and tuples per second that arrive for it.

    `owner` is whose it is, `price` what is paid for it, `keep` the share of its tuples that is kept, `place` the
    folder of its ledger and its batches, which moves with it.
    """

    owner: str
    cpu: float = 0.0
    rate: float = 0.0
    keep: float = 1.0
    delay_seconds: float | None = None
    malformed: int = 0
    price: float | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class ContractPart:
    """A contract with a partner; `kinds` of fragments, or all."""

    giver: str
    taker: str
    lowest_price: float
    highest_price: float
    kinds: str = "all"


@dataclass(frozen=True, slots=True)
class MovePart:
    """A move of fragments between two participants, and how long each of its steps took, in seconds."""

    id: str
    giver: str
    taker: str
    state: str
    at: float
    fragments: tuple[str, ...] = ()
    price: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class OfferPart:
    """Fragments that are offered to a partner now."""

    taker: str
    fragments: tuple[str, ...]
    price: float


@dataclass(frozen=True, slots=True)
class MissedPart:
    """How a partner serves a fragment of ours that it does not serve in full."""

    by: str
    keep: float = 1.0
    delay_seconds: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ParticipantPart:
    """Loads in CPU-seconds per second; times in seconds of the epoch; balance in price × CPU × seconds.

    `lent` names by fragment who runs it, `leases` until when this participant may run it, `silent` how often each
    partner did not answer, `stalled` why a fragment that is held does not run, `moves_total` counts moves by state.
    """

    cpu: float
    load: float
    unit_cost: float = 0.0
    fragments: Mapping[str, FragmentPart] = field(default_factory=dict)
    lent: Mapping[str, str] = field(default_factory=dict)
    offer: OfferPart | None = None
    balance: float = 0.0
    leases: Mapping[str, float] = field(default_factory=dict)
    contracts: tuple[ContractPart, ...] = ()
    moves: tuple[MovePart, ...] = ()
    moves_total: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, MissedPart] = field(default_factory=dict)
    stalled: Mapping[str, str] = field(default_factory=dict)

    def troubles(self) -> list[str]:
        """What an operator of a participant has to know, as sentences."""
        return [
            *(f"{fragment} is held and does not run: {why}" for fragment, why in self.stalled.items()),
            *(f"{partner} does not answer ({times} times)" for partner, times in self.silent.items()),
            *(
                f"{fragment} is not served in full by {one.by}: it keeps {one.keep:.0%}, "
                f"results take {one.delay_seconds or 0.0:.1f} s"
                for fragment, one in self.missed.items()
            ),
            *(f"{where}: {why}" for where, why in self.failures.items()),
        ]

    @property
    def ended_moves(self) -> dict[str, int]:
        """Moves by how they ended, both ways there from 0 on."""
        return {state: self.moves_total.get(state, 0) for state in ENDED}

    @property
    def open_moves(self) -> int:
        """Moves that have begun and not ended."""
        return sum(self.moves_total.values()) - sum(self.ended_moves.values())
