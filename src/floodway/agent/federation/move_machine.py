"""A move between two participants as a state machine without I/O: it says what to do next, and is told what came of it.

    giver   note the intent → let the taker prepare → stop at a batch boundary → ask the taker → look how it was decided
    taker   note it → decide it as taken, by a file on the shared storage → claim the leases → start → confirm

The giver withdraws a move by creating the same file: whichever of the two creates it decides the move for both, so an
answer that got lost, a time-out or a crash at any point leaves one owner. What could not be started at the taker is
given back by a lease that names the giver. Until the taker has confirmed, the giver keeps all it needs to resume; where
it cannot find out how the move was decided, the fragments wait, and the move is settled later. What was prepared
changes no owner: a move goes on without it.

A state names the last point reached, as a kill test does, and the one action under way; `moves.py` carries the action
out on journal, leases and engine, and `step` turns its outcome into the next state. A crash loses the state: what was
begun is taken up from its row in the journal by `resuming`.

>>> row = MoveRow("A/0", "taker", "A", "B", 4.0, {"f": 0.5}, {"f": 1}, "taking", at=0.0)
>>> state = step(beginning(row), Carried())
>>> state.point, state.action
('noted', Decide(taken=True))
>>> withdrawn = MoveDecision("A/0", "A", "B", False, 0.0, 4.0, {"f": 1}, {"f": 0.5})
>>> step(state, MoveDecided(withdrawn)).action
NoteState(state='failed', seconds=(), note='withdrawn by its giver', at=None)
"""

from __future__ import annotations

from dataclasses import dataclass

from floodway.agent.federation.errors import FragmentLostError
from floodway.agent.federation.journal_rows import MoveRow
from floodway.agent.federation.leases import FragmentLease, MoveDecision
from floodway.agent.federation.move_actions import (
    Answered,
    Ask,
    Begin,
    Carried,
    Decide,
    EndLease,
    Failed,
    Follow,
    Followed,
    GaveUp,
    GiveBack,
    HaltAll,
    HoldLease,
    LeaseLines,
    LetGo,
    LetPrepare,
    MoveAction,
    MoveDecided,
    MoveEvent,
    MoveOver,
    MoveRefused,
    NoteFault,
    NoteState,
    ReadDecision,
    Report,
    Resume,
    RunAll,
    Wait,
)
from floodway.agent.federation.spans import came_to_pass
from floodway.errors import FloodwayError


@dataclass(frozen=True, slots=True)
class MoveState:
    """One side of a move: the last point that it came to, what is under way, and what follows if that goes well."""

    row: MoveRow
    action: MoveAction
    rest: tuple[MoveAction, ...] = ()
    point: str = ""

    def then(self, *actions: MoveAction, point: str | None = None) -> MoveState:
        """These actions are next, at a new point if one was reached."""
        return MoveState(self.row, actions[0], actions[1:], self.point if point is None else point)

    def next(self, point: str | None = None) -> MoveState:
        """As was foreseen."""
        return self.then(*self.rest, point=point)


def beginning(row: MoveRow) -> MoveState:
    """Either side of a move that begins."""
    return MoveState(row, Begin())


def resuming(row: MoveRow) -> MoveState:
    """Either side of a move that was cut short.

    The giver withdraws it if it is not decided; the taker only looks, for nobody else could have decided to take it.
    """
    return MoveState(row, Decide(taken=False) if row.role == "giver" else ReadDecision())


def step(state: MoveState, event: MoveEvent) -> MoveState:
    """The state after the action under way has come to this."""
    after = _give(state, event) if state.row.role == "giver" else _take(state, event)
    if after is None:
        raise ValueError(f"{event} does not answer {state.action} at {state.point!r}")
    return after


def _give(state: MoveState, event: MoveEvent) -> MoveState | None:
    row = state.row
    match state.action, event:
        case Begin(), Carried():
            return state.then(LetPrepare(), point="intended")
        case LetPrepare(), Carried(seconds):
            return state.then(NoteState("intended", (("prepare", seconds),)))
        case LetPrepare(), Failed(error, seconds):  # the move only takes longer
            return state.then(Report(f"preparing move {row.id}", error), NoteState("intended", (("prepare", seconds),)))
        case NoteState("intended"), Carried():
            return state.then(HaltAll(), point="prepared")
        case Begin() | NoteState("intended"), Failed(error):
            return state.then(GaveUp(error))
        case HaltAll(), Carried(seconds):
            return state.then(NoteState("stopped", (("stop", seconds),)))
        case NoteState("stopped"), Carried():
            return state.then(NoteState("asked"), point="stopped")
        case NoteState("asked"), Carried() if state.point == "stopped":
            return state.then(Ask(), point="asked")
        case Ask(), Answered(told, seconds):
            hand_over = seconds - dict(told).get("start", 0.0)
            return state.then(NoteState("asked", (("hand_over", hand_over), *told)), point="answered")
        case HaltAll() | NoteState("stopped" | "asked") | Ask(), Failed(error):
            return state.then(NoteFault(_words(error)))  # whatever it is, what matters is how the move was decided
        case (NoteState("asked"), Carried()) | (NoteFault(), Carried() | Failed()):
            return state.then(Decide(taken=False))
        case Decide(), MoveDecided(MoveDecision() as decision):
            return state.then(Follow(decision))
        case Follow(decision), Followed(lines):
            return state.then(*_settlement(row, decision, lines))
        case NoteState("done" | "failed"), Carried():
            return state.next("settled")
        case _, Failed(error):
            return state.then(Wait(f"move {row.id} is not settled: {_words(error)}"), GaveUp(error))
        case _, Carried():
            return state.next()
    return None


def _settlement(row: MoveRow, decision: MoveDecision, lines: LeaseLines) -> list[MoveAction]:
    """What the giver does once the move is decided: let go of what went over, resume what is left."""
    current = {fragment: leases[-1] for fragment, leases in lines.items() if leases}
    stayed = tuple(lease for lease in current.values() if lease.owner == row.giver)
    actions: list[MoveAction] = []
    for fragment, epoch in row.epochs.items():
        if current.get(fragment) not in stayed:
            actions += [LetGo(fragment), EndLease(fragment, epoch, decision.at)]
    for lease in stayed:
        actions.append(HoldLease(lease, "own" if lease.epoch == row.epochs[lease.fragment] else "returned"))
    resume = Resume(tuple(lease.fragment for lease in stayed))
    return [*actions, _end(decision, lines), resume, MoveOver(stayed)]


def _take(state: MoveState, event: MoveEvent) -> MoveState | None:
    row = state.row
    match state.action, event:
        case Begin(), Carried():
            return state.then(Decide(taken=True), point="noted")
        case Decide(), MoveDecided(MoveDecision() as decision):
            if decision.taken:
                return state.then(Follow(decision), point="decided")
            refusal = MoveRefused(f"{row.giver} withdrew move {row.id}", "It was asked for too late")
            return state.then(NoteState("failed", note="withdrawn by its giver"), refusal, point="decided")
        case Follow(decision), Followed(lines) if state.point == "decided":
            leases = _brought_by(decision, lines)
            if leases:
                return state.then(RunAll(leases), point="leased")
            refusal = MoveRefused(f"the fragments of move {row.id} are somebody else's by now", "Offer what is held")
            return state.then(_end(decision, lines, "claimed by somebody else before it was taken"), refusal)
        case RunAll(leases), Carried(seconds):
            start = (("start", seconds),)
            return state.then(NoteState("done", start, at=leases[0].since), MoveOver(leases, start), point="started")
        case NoteState("done"), Carried() if state.point == "started":
            return state.next("done")
        case RunAll(leases), Failed(error):  # a fragment is never left taken and not running
            back: list[MoveAction] = []
            for one in leases:
                back += [LetGo(one.fragment), GiveBack(one), EndLease(one.fragment, one.epoch)]
            refusal = MoveRefused(f"move {row.id} could not be started: {error}"[:300], "The giver resumes")
            # Leases before the journal: they tell how the move ended, here and after a crash.
            return state.then(*back, ReadDecision(), refusal)
        case LetGo(), Carried():
            return state.next("giving-back")
        case LetGo(fragment), Failed(error):
            return state.then(Report(f"stop of {fragment}", error), *state.rest, point="giving-back")
        case GiveBack(), Carried() | Failed(FragmentLostError()):
            return state.next("gave-back")
        case ReadDecision(), MoveDecided(None):
            return state.then(NoteState("failed", note="cut short before it was decided"), MoveOver())
        case ReadDecision(), MoveDecided(MoveDecision() as decision):
            return state.then(Follow(decision), *state.rest)
        case Follow(decision), Followed(lines):
            leases = _brought_by(decision, lines)
            ends = state.rest or (MoveOver(leases),)
            why = ends[0].why if isinstance(ends[0], MoveRefused) else "cut short: it stayed or went back"
            return state.then(*(HoldLease(one, "moved") for one in leases), _end(decision, lines, why), *ends)
        case HoldLease(), Failed(FragmentLostError()):  # lost in this very moment
            return state.next()
        case _, Failed(error):
            return state.then(GaveUp(error))
        case _, Carried():
            return state.next()
    return None


def _end(decision: MoveDecision, lines: LeaseLines, why: str = "") -> NoteState:
    """How the move ended, by the leases alone: both sides find the same."""
    return NoteState("done", at=decision.at) if came_to_pass(decision, lines) else NoteState("failed", note=why)


def _brought_by(decision: MoveDecision, lines: LeaseLines) -> tuple[FragmentLease, ...]:
    """The leases in force that belong to a move."""
    return tuple(one for leases in lines.values() for one in leases[-1:] if one.move == decision.id)


def _words(error: Exception) -> str:
    text = error.message if isinstance(error, FloodwayError) else str(error)
    return (text or type(error).__name__)[:300]
