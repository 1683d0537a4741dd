"""A move in a simulated world, for a test that visits all of its states: the machines are real, all round them is data.

The world is a value: what is on the shared storage and in the journals, what each process has in its memory, which
messages are under way, and how many faults may still come. `successors` are all worlds that the next event makes of
one; `healed` is what becomes of one when no fault comes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from floodway.agent.federation import move_actions as act
from floodway.agent.federation.errors import FragmentLostError
from floodway.agent.federation.journal_rows import OPEN, MoveRow, Role, State
from floodway.agent.federation.leases import FragmentLease, MoveDecision
from floodway.agent.federation.move_machine import MoveState, beginning, resuming, step
from floodway.agent.federation.spans import spans

FAULT = OSError(28, "No space left on device")
LOST = FragmentLostError("lost")
REFUSED = OSError("refused, or no answer")
PRICE, UNITS = 4.0, 0.5
Number = TypeVar("Number", bound=float)


class Frozen(Mapping[str, Number]):
    """A mapping that may be part of a value."""

    def __init__(self, body: Mapping[str, Number]) -> None:
        self._body: dict[str, Number] = dict(body)

    def __getitem__(self, key: str) -> Number:
        return self._body[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._body)

    def __len__(self) -> int:
        return len(self._body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._body == other._body

    def __hash__(self) -> int:
        return len(self._body)  # the worlds of one test differ in much else


class Query(NamedTuple):
    """A fragment as an engine runs it, under the lease of an epoch; a `loose` one only its fence keeps from writing."""

    fragment: str
    epoch: int
    loose: bool = False


class Side(NamedTuple):
    """One participant: its journal's row of the move, and what its process has in memory, nothing if it is dead."""

    name: str
    row: MoveRow | None = None
    alive: bool = True
    process: int = 0
    recovering: bool = False
    work: MoveState | None = None
    asking: bool = False
    held: frozenset[tuple[str, int]] = frozenset()
    leaving: frozenset[str] = frozenset()
    stalled: frozenset[str] = frozenset()
    running: frozenset[Query] = frozenset()
    late: bool = False

    @property
    def mark(self) -> str:
        return f"{self.name}{self.process}"

    def holds(self, fragment: str) -> bool:
        return any(name == fragment for name, _ in self.held)

    def dropped(self, fragment: str) -> Side:
        """Neither held nor run."""
        return self._replace(
            held=frozenset(one for one in self.held if one[0] != fragment),
            running=frozenset(one for one in self.running if one.fragment != fragment),
            leaving=self.leaving - {fragment},
            stalled=self.stalled - {fragment},
        )

    def started(self, fragment: str) -> Side:
        """Run what is held and stays; starting twice changes nothing."""
        epoch = next((epoch for name, epoch in self.held if name == fragment), None)
        if epoch is None or fragment in self.leaving:
            return self
        found = any(one.fragment == fragment for one in self.running)
        running = self.running if found else self.running | {Query(fragment, epoch)}
        return self._replace(running=running, stalled=self.stalled - {fragment})


class Budget(NamedTuple):
    """How many may still come: kills, actions that fail, doubled requests, sides held up, and lease times that pass."""

    kills: int = 0
    faults: int = 0
    doubles: int = 0
    delays: int = 0
    passes: int = 1


class World(NamedTuple):
    """All that there is; `silent` are leases that the origin has seen unchanged for longer than they are good for."""

    sides: tuple[Side, ...]
    lines: tuple[tuple[FragmentLease, ...], ...]
    decision: MoveDecision | None = None
    asks: int = 0
    answers: frozenset[bool] = frozenset()
    now: int = 0
    silent: frozenset[tuple[str, int]] = frozenset()
    left: Budget = Budget()

    def side(self, name: str) -> Side:
        return next(side for side in self.sides if side.name == name)

    def spent(self, kind: str) -> World:
        """One fault less to come."""
        return self._replace(left=self.left._replace(**{kind: getattr(self.left, kind) - 1}))

    def put(self, side: Side) -> World:
        return self._replace(sides=tuple(side if one.name == side.name else one for one in self.sides))

    def current(self, fragment: str) -> FragmentLease:
        return next(line[-1] for line in self.lines if line[0].fragment == fragment)

    def with_lease(self, lease: FragmentLease) -> World:
        """A lease made, or renewed."""
        lines = tuple(
            (*(one for one in line if one.epoch != lease.epoch), lease) if line[0].fragment == lease.fragment else line
            for line in self.lines
        )
        return self._replace(lines=lines, silent=self.silent - {(lease.fragment, lease.epoch)})

    def in_force(self, side: Side, fragment: str, epoch: int) -> bool:
        lease = self.current(fragment)
        return lease.epoch == epoch and lease.process == side.mark


Step = Callable[[MoveState, act.MoveEvent], MoveState]


@dataclass(frozen=True)
class Moves:
    """The move of all fragments from one participant to another; `origin` owns them and is one of the two, or a third.

    `step` is the machine, or one that a test has broken.
    """

    giver: str
    taker: str
    origin: str
    fragments: tuple[str, ...] = ("f",)
    step: Step = step

    @property
    def id(self) -> str:
        return f"{self.giver}/1"

    def first(self, budget: Budget) -> World:
        """The giver runs the fragments and has begun to give them."""
        lines = []
        for name in self.fragments:
            line = [FragmentLease(name, 1, self.origin, 0.0, 1.0)]
            if self.giver != self.origin:
                line.append(FragmentLease(name, 2, self.giver, 0.0, 1.0, move=f"{self.origin}/0"))
            line[-1] = replace(line[-1], process=f"{self.giver}0", renewed=0.0)
            lines.append(tuple(line))
        epochs = {line[-1].fragment: line[-1].epoch for line in lines}
        row = self._row("giver", "intended", 0.0, Frozen(epochs))
        giver = Side(
            self.giver,
            work=beginning(row),
            held=frozenset(epochs.items()),
            running=frozenset(Query(*one) for one in epochs.items()),
        )
        others = [Side(name) for name in sorted({self.taker, self.origin} - {self.giver})]
        return World((giver, *others), tuple(lines), left=budget)

    def _row(self, role: Role, state: State, at: float, epochs: Frozen[int]) -> MoveRow:
        units = Frozen(dict.fromkeys(self.fragments, UNITS))
        return MoveRow(self.id, role, self.giver, self.taker, PRICE, units, epochs, state, at, seconds=Frozen({}))

    def successors(self, world: World) -> Iterator[tuple[str, World]]:
        """Every world that one event makes of this one, with what happened; an answer that nobody waits for is none."""
        for label, after in self._next(world):
            yield label, after if after.side(self.giver).asking else after._replace(answers=frozenset())

    def _next(self, world: World) -> Iterator[tuple[str, World]]:
        for side in world.sides:
            if not side.alive:
                yield f"{side.name} restarts", self._restarted(world, side)
                continue
            yield from self._worked(world, side)
            yield from self._ticked(world, side)
            if world.left.kills:
                killed = Side(side.name, side.row, alive=False, process=side.process)
                yield f"{side.name} is killed", world.put(killed).spent("kills")
        yield from self._delivered(world)
        if world.left.passes:
            yield "time passes", self._passed(world, None).spent("passes")
            if world.left.delays:
                for side in world.sides:
                    if side.alive:
                        late = self._passed(world, side.name).spent("delays").spent("passes")
                        yield f"time passes and {side.name} is held up", late

    # What a move does.

    def _worked(self, world: World, side: Side) -> Iterator[tuple[str, World]]:
        """The action under way is carried out; or it fails, with its effect or without."""
        work = side.work
        if work is None:
            return
        if isinstance(work.action, act.Ask):
            if side.asking:
                yield f"{side.name} waits no longer", self._told(world, side, act.Failed(REFUSED))
            else:
                yield f"{side.name} asks", world.put(side._replace(asking=True))._replace(asks=world.asks + 1)
            return
        label = f"{side.name} {type(work.action).__name__}"
        after, event = self._outcome(world, side, work)
        yield label, self._told(after, after.side(side.name), event)
        for kind, found, fault in self._faults(world, side, work.action, after) if world.left.faults else ():
            less = found.spent("faults")
            yield f"{label} {kind}", self._told(less, less.side(side.name), fault)

    def _faults(
        self, world: World, side: Side, action: act.MoveAction, after: World
    ) -> Iterator[tuple[str, World, act.MoveEvent]]:
        """How an action may fail; what it has written by then stays."""
        fault, here = act.Failed(FAULT), after.side(side.name)
        match action:
            case act.Wait() | act.Report():
                return
            case act.Resume(fragments):
                stalled = here.stalled | set(fragments)
                yield "starts nothing", after.put(here._replace(running=side.running, stalled=stalled)), act.Carried()
                return
            case act.LetGo(fragment):
                left = frozenset(one._replace(loose=True) for one in side.running if one.fragment == fragment)
                yield "stops nothing", after.put(here._replace(running=here.running | left)), fault
            case act.RunAll(leases):
                stalled = here.stalled | {lease.fragment for lease in leases if here.holds(lease.fragment)}
                yield "starts nothing", after.put(here._replace(running=side.running, stalled=stalled)), fault
            case act.HoldLease() | act.Decide() | act.Follow() | act.GiveBack():
                yield "fails when all is written", after.put(side), fault
                if isinstance(action, act.Follow) and len(self.fragments) > 1:
                    half = after._replace(lines=(after.lines[0], *world.lines[1:]))
                    yield "fails between two leases", half, fault
        yield "fails", world, fault

    def _told(self, world: World, side: Side, event: act.MoveEvent) -> World:
        """A move goes on; at its end its process carries on without it, and a taker answers."""
        assert side.work is not None
        work = self.step(side.work, event)
        side = side._replace(work=work, asking=False)
        if not isinstance(work.action, act.MoveEnd):
            return world.put(side)
        if work.row.role == "taker" and work.point != "":
            world = world._replace(answers=world.answers | {isinstance(work.action, act.MoveOver)})
        side = side._replace(work=None)
        if work.row.role == "taker" and isinstance(work.action, act.MoveOver):
            for lease in work.action.leases:
                side = side.started(lease.fragment)
        return world.put(side)

    def _outcome(self, world: World, side: Side, work: MoveState) -> tuple[World, act.MoveEvent]:
        """What an action does to the storage, the journal and the engine."""
        row, done = work.row, act.Carried()
        match work.action:
            case act.Begin():
                return world.put(side._replace(row=side.row or row)), done
            case act.NoteState(state, _, _, at):
                return world.put(_reached(side, state, at)), done
            case act.NoteFault():
                return world.put(_reached(side, "asked", None)), done
            case act.HaltAll():
                names = frozenset(row.epochs)
                running = frozenset(one for one in side.running if one.fragment not in names)
                return world.put(side._replace(running=running, leaving=side.leaving | names)), done
            case act.Decide(taken):
                found = world.decision or MoveDecision(
                    row.id, row.giver, row.taker, taken, float(world.now), row.price, row.epochs, row.units
                )
                return world._replace(decision=found), act.MoveDecided(found)
            case act.ReadDecision():
                return world, act.MoveDecided(world.decision)
            case act.Follow(decision):
                for fragment, epoch in decision.epochs.items():
                    if decision.taken and world.current(fragment).epoch == epoch:
                        at = decision.at
                        made = FragmentLease(fragment, epoch + 1, decision.taker, at, at + 1.0, decision.id)
                        world = world.with_lease(made)
                lines = {line[0].fragment: line for line in world.lines}
                since = {name: lines[name][epoch - 1 :] for name, epoch in decision.epochs.items()}
                return world, act.Followed(since)
            case act.HoldLease(lease):
                return self._held(world, side, (lease,))
            case act.RunAll(leases):
                world, event = self._held(world, side, leases)
                side = world.side(side.name)
                for lease in leases if event == done else ():
                    side = side.started(lease.fragment)
                return world.put(side), event
            case act.Resume(fragments):
                side = side._replace(leaving=side.leaving - set(fragments))
                for fragment in fragments:
                    side = side.started(fragment)
                return world.put(side), done
            case act.LetGo(fragment):
                return world.put(side.dropped(fragment)), done
            case act.GiveBack(lease):
                if world.current(lease.fragment).epoch != lease.epoch:
                    return world, act.Failed(LOST)
                now = float(world.now)
                return world.with_lease(FragmentLease(lease.fragment, lease.epoch + 1, row.giver, now, now + 1.0)), done
            case act.Wait():
                names = frozenset(row.epochs)
                stalled = side.stalled | {name for name in names if side.holds(name)}
                return world.put(side._replace(leaving=side.leaving | names, stalled=stalled)), done
        return world, done

    def _held(
        self, world: World, side: Side, leases: tuple[FragmentLease, ...]
    ) -> tuple[World, act.Carried | act.Failed]:
        """The mark of this process goes into each lease, as far as it is in force."""
        for lease in leases:
            current = world.current(lease.fragment)
            if current.epoch != lease.epoch:
                return world, act.Failed(LOST)
            world = world.with_lease(replace(current, process=side.mark, renewed=float(world.now)))
            held = frozenset(one for one in side.held if one[0] != lease.fragment)
            side = side._replace(held=held | {(lease.fragment, lease.epoch)})
            world = world.put(side)
        return world, act.Carried()

    # What the process round it does.

    def _restarted(self, world: World, side: Side) -> World:
        cut_short = side.row is not None and side.row.state in OPEN
        work = resuming(side.row) if side.row is not None and cut_short else None
        return world.put(Side(side.name, side.row, True, side.process + 1, recovering=True, work=work))

    def _ticked(self, world: World, side: Side) -> Iterator[tuple[str, World]]:
        """Recovery, open moves, lost leases, what is stalled, and what was left by a silent owner."""
        if side.recovering:
            if side.work is None:
                mine = [world.current(name) for name in self.fragments if not side.holds(name)]
                yield (
                    f"{side.name} runs what is its own",
                    self._running(
                        world.put(side._replace(recovering=False)),
                        side.name,
                        tuple(lease for lease in mine if lease.owner == side.name),
                    ),
                )
            return
        if side.work is None and side.row is not None and side.row.state in OPEN:
            yield f"{side.name} looks at an open move", world.put(side._replace(work=resuming(side.row)))
        for fragment, epoch in side.held:
            if not world.in_force(side, fragment, epoch) and fragment not in side.leaving:
                yield f"{side.name} notices that {fragment} is lost", world.put(side.dropped(fragment))
        for one in side.running:
            if not world.in_force(side, one.fragment, one.epoch):
                stalled = side.stalled | ({one.fragment} if side.holds(one.fragment) else set())
                stopped = side._replace(running=side.running - {one}, stalled=stalled)
                yield f"the fence stops {one.fragment} at {side.name}", world.put(stopped)
        for fragment in side.stalled - side.leaving:
            if side.holds(fragment):
                yield f"{side.name} starts {fragment} again", world.put(side.started(fragment))
        if side.name != self.origin:
            return
        for fragment in self.fragments:
            lost = world.current(fragment)
            if not side.holds(fragment) and (fragment, lost.epoch) in world.silent:
                now = float(world.now)
                fresh = FragmentLease(fragment, lost.epoch + 1, side.name, now, now + 1.0)
                fresh = replace(fresh, idle_since=lost.alive, idle_until=now)
                claimed = world.with_lease(fresh)
                yield f"{side.name} takes {fragment} back", self._running(claimed, side.name, (fresh,))
                if world.left.kills:
                    killed = Side(side.name, side.row, alive=False, process=side.process)
                    gone = claimed.put(killed).spent("kills")
                    yield f"{side.name} claims {fragment} and is killed", gone

    def _running(self, world: World, name: str, leases: tuple[FragmentLease, ...]) -> World:
        for lease in leases:
            world, event = self._held(world, world.side(name), (lease,))
            if isinstance(event, act.Carried):
                world = world.put(world.side(name).started(lease.fragment))
        return world

    def _delivered(self, world: World) -> Iterator[tuple[str, World]]:
        taker, giver = world.side(self.taker), world.side(self.giver)
        if world.asks and taker.alive and not taker.recovering:
            heard = self._heard(world, taker)
            yield "the request arrives", heard._replace(asks=world.asks - 1)
            if world.left.doubles:
                yield "the request arrives, of two", heard.spent("doubles")
        for taken in world.answers:
            event = act.Answered() if taken else act.Failed(REFUSED)
            yield "the answer arrives", self._told(world._replace(answers=world.answers - {taken}), giver, event)

    def _heard(self, world: World, taker: Side) -> World:
        """As `take` of `moves.py`: one that is known or under way is answered, another is judged by its leases."""
        if taker.work is not None or taker.row is not None:
            done = taker.work is None and taker.row is not None and taker.row.state == "done"
            return world._replace(answers=world.answers | {done})
        before = 1 if self.giver == self.origin else 2
        if any((one.owner, one.epoch) != (self.giver, before) for one in map(world.current, self.fragments)):
            return world._replace(answers=world.answers | {False})
        row = self._row("taker", "taking", float(world.now), Frozen(dict.fromkeys(self.fragments, before)))
        return world.put(taker._replace(work=beginning(row)))

    def _passed(self, world: World, held_up: str | None) -> World:
        """Time for which a lease is good; who lives renews what it holds, unless it is held up."""
        watched = world.side(self.origin).alive and self.origin != held_up
        there = {(line[-1].fragment, line[-1].epoch) for line in world.lines} if watched else set()
        world = world._replace(now=world.now + 1, silent=world.silent | there)
        for side in world.sides:
            if side.name == held_up:
                world = world.put(side._replace(late=True))
                continue
            for fragment, epoch in side.held:
                if world.in_force(side, fragment, epoch):
                    world = world.with_lease(replace(world.current(fragment), renewed=float(world.now)))
        return world

    # What must be true.

    def broken(self, world: World) -> str:
        """What is wrong with a world at any time: two run a fragment, and more than a fence keeps them apart."""
        for fragment in self.fragments:
            names = [
                side.name
                for side in world.sides
                for one in side.running
                if one.fragment == fragment
                and not one.loose
                and (world.in_force(side, fragment, one.epoch) or not side.late)
            ]
            if len(names) > 1:
                return f"{' and '.join(names)} run {fragment}"
        return ""

    def calm(self, world: World) -> World:
        """The same world, in which no fault comes any more; what is under way is lost, and time may pass."""
        return world._replace(left=Budget(passes=2), asks=0, answers=frozenset())

    def next_healed(self, world: World, *, revive: bool) -> World | None:
        """The next event in a calm world; None when nothing is left to happen.

        The dead come back; without `revive` only the origin does, and the others stay away for ever.
        """
        for side in world.sides:
            if not side.alive and (revive or side.name == self.origin):
                return self._restarted(world, side)
        for side in world.sides:
            if side.alive:
                for _, after in (*self._worked(world, side), *self._ticked(world, side)):
                    if after != world:
                        return after
        if world.left.passes and any(self._unrun(world, fragment) for fragment in self.fragments):
            return self._passed(world, None).spent("passes")
        return None

    def _unrun(self, world: World, fragment: str) -> str:
        """Whether another than its owner runs a fragment, or nobody."""
        owner = world.current(fragment).owner
        runs = [side.name for side in world.sides for one in side.running if one.fragment == fragment]
        return "" if runs == [owner] else f"{owner} owns {fragment}, and {runs} run it"

    def unhealed(self, world: World, *, revive: bool) -> str:
        """What is wrong with a world in which nothing is left to happen."""
        for fragment in self.fragments:
            if wrong := self._unrun(world, fragment):
                return wrong
        if not revive:
            return ""
        for side in world.sides:
            if side.stalled or side.leaving:
                return f"{side.name} still waits: {side.stalled}, {side.leaving}"
        return self._unpaid(world)

    def _unpaid(self, world: World) -> str:
        """Both sides have come to an end of the move, and book what the leases say that is owed."""
        rows = [world.side(name).row for name in (self.giver, self.taker)]
        if any(row is not None and row.state in OPEN for row in rows):
            return "the move is open"
        found = [span for line in world.lines if (span := spans(line).get(self.id)) is not None]
        owed = [(span.start, span.served, span.outage) for span in found if span.served > span.start or span.outage]
        for row in rows:
            booked = owed if row is not None and row.state == "done" else []
            if booked != owed or (booked and row is not None and row.at != owed[0][0]):
                return f"{'a side' if row is None else row.role} books {booked} of {owed}"
        return ""


def _reached(side: Side, state: State, at: float | None) -> Side:
    row = side.row
    if row is None or row.state not in OPEN:
        return side
    return side._replace(row=replace(row, state=state, at=row.at if at is None else at))
