"""What a move asks its surroundings to do, and what it is told came of it: the actions and events of `move_machine.py`.

All are plain data. `moves.py` carries the actions out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.agent.federation.journal_rows import State
from floodway.agent.federation.leases import FragmentLease, MoveDecision

PhaseSeconds = tuple[tuple[str, float], ...]
"""How long the phases of a move took, by name."""
LeaseLines = Mapping[str, tuple[FragmentLease, ...]]
"""By fragment all leases from its giver's on, oldest first: the last one is in force."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Journal the move."""


@dataclass(frozen=True, slots=True)
class LetPrepare:
    """Have the taker do all that needs none of the fragments, which run here meanwhile."""


@dataclass(frozen=True, slots=True)
class HaltAll:
    """Stop all fragments at a batch boundary; nothing here starts them until the move is settled."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Have the taker take over; the outcome is its answer."""


@dataclass(frozen=True, slots=True)
class NoteState:
    """Journal how far the move has come; `at` is when it became the taker's."""

    state: State
    seconds: PhaseSeconds = ()
    note: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class NoteFault:
    """Journal what went wrong before the move was decided."""

    why: str


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide the move on the shared storage, unless it is decided already; the outcome is the decision in force."""

    taken: bool


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """Read how the move was decided, if it was, and decide nothing."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Claim the leases that a decision brings, as far as nobody has; the outcome are all leases since."""

    decision: MoveDecision


@dataclass(frozen=True, slots=True)
class HoldLease:
    """Hold a fragment under its lease, and renew that from now on."""

    lease: FragmentLease
    how: str


@dataclass(frozen=True, slots=True)
class RunAll:
    """Hold these leases, and then start their fragments: a start takes long, and all must be renewed meanwhile."""

    leases: tuple[FragmentLease, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Start the fragments that stayed; what cannot be started now is tried again."""

    fragments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LetGo:
    """Stop a fragment that is somebody else's, and renew its lease no more."""

    fragment: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Make a lease that names the giver, after this one."""

    lease: FragmentLease


@dataclass(frozen=True, slots=True)
class EndLease:
    """Journal that a lease is over since then, or since now."""

    fragment: str
    epoch: int
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the fragments stopped, and let the status say why."""

    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell of a fault that changes nothing."""

    where: str
    error: Exception


@dataclass(frozen=True, slots=True)
class MoveOver:
    """The end: these leases are held here because of the move, and the phases took so long."""

    leases: tuple[FragmentLease, ...] = ()
    seconds: PhaseSeconds = ()


@dataclass(frozen=True, slots=True)
class MoveRefused:
    """The end at a taker that did not take the fragments."""

    why: str
    hint: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The end for now: where the move stands in the journal, it is taken up from there."""

    error: Exception


MoveEnd = MoveOver | MoveRefused | GaveUp
MoveQuery = LetPrepare | Ask | Decide | ReadDecision | Follow
"""What the partner or the shared storage answers."""
MoveNote = Begin | NoteState | NoteFault | EndLease
MoveDeed = MoveNote | HaltAll | HoldLease | RunAll | Resume | LetGo | GiveBack | Wait | Report
"""What is done here, and went well or not."""
MoveAction = MoveQuery | MoveDeed | MoveEnd


@dataclass(frozen=True, slots=True)
class Carried:
    """The action was carried out, in so many seconds."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """The action failed; it may have had its effect all the same."""

    error: Exception
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The taker has taken over, and tells of its own phases."""

    told: PhaseSeconds = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MoveDecided:
    """How the move was decided; None if it was not."""

    decision: MoveDecision | None


@dataclass(frozen=True, slots=True)
class Followed:
    """The leases, once those of the decision are made."""

    leases: LeaseLines


MoveEvent = Carried | Failed | Answered | MoveDecided | Followed
