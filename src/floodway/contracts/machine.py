"""One participant as a state machine: an event in, the new state and the actions to carry out.

The machine knows no network and no clock: whoever runs it delivers messages, carries out moves and says what time it
is. The simulation runs thousands in one process; between real participants the same code runs over HTTP.

>>> from floodway.contracts.contract import Contract
>>> from floodway.contracts.cost import InFlight
>>> from floodway.contracts.load import Load, Task
>>> from floodway.contracts.participant_state import participant
>>> contract = Contract("A", "B", 0.25, 0.25)
>>> a = participant("A", InFlight(), [contract], [Task(f"t{k}", Load(0.025, 0.04)) for k in range(16)])
>>> a, (send,) = step(a, Tick(), now=0.0)
>>> [task.name for task in send.message.tasks]
['t0', 't1']
>>> b, _ = step(participant("B", InFlight(), [contract]), send.message, now=0.0)
>>> b, (answer,) = step(b, Tick(), now=0.0)
>>> a, (move,) = step(a, answer.message, now=0.0)
>>> b, _ = step(b, Arrived(move), now=0.1)
>>> a, _ = step(a, Moved(move.id), now=0.1)
>>> len(a.holdings), len(b.holdings)
(14, 2)
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from floodway.contracts.accepting import (
    answer_offers,
    forget_promises,
    on_arrived,
    on_cancel,
    on_offer,
    tell_of_room,
)
from floodway.contracts.contract import with_partner
from floodway.contracts.messages import (
    Accept,
    Arrived,
    Cancel,
    Counter,
    Ended,
    Event,
    Gave,
    Held,
    Moved,
    MoveFailed,
    Offer,
    Recall,
    Reject,
    Remeasured,
    Room,
    Started,
    Tick,
)
from floodway.contracts.offering import Step, on_answer, on_move_failed, on_moved, try_to_shed
from floodway.contracts.participant_state import Away, Holding, Participant, without
from floodway.contracts.taking_back import ask_back, offer_home, on_recall
from floodway.errors import ContractError


def step(state: Participant, event: Event, now: float) -> Step:
    """The state after an event at `now` (seconds on any clock), and what is to be done.

    An event that breaks a contract raises `ContractError`; the caller keeps the state it had.
    """
    match event:
        case Tick():
            state, notes = forget_promises(state, now)
            state, answers = answer_offers(state, now)
            state, recalls = ask_back(state, now)
            state, home = offer_home(state, now)
            state, offers = try_to_shed(state, now)
            return state, (*notes, *answers, *recalls, *home, *offers)
        case Offer():
            return on_offer(state, event, now)
        case Accept() | Counter() | Reject():
            return on_answer(state, event, now)
        case Cancel():
            return _and_tell(on_cancel(state, event))
        case Room():
            with_partner(state.gives_to, event.taker, me=state.name)
            return state.wake(), ()
        case Recall():
            return on_recall(state, event)
        case Moved():
            return _and_tell(on_moved(state, event))
        case MoveFailed():
            return on_move_failed(state, event, now)
        case Arrived():
            return on_arrived(state, event)
        case Started():
            return _started(state, event)
        case Held():
            return _held(state, event)
        case Gave():
            found = Away(event.task, event.taker, event.price)
            return replace(state, away={**state.away, event.task.name: found}), ()
        case Ended():
            return _and_tell(_ended(state, event))
        case Remeasured():
            return _remeasured(state, event)
        case _:
            assert_never(event)


def _and_tell(done: Step) -> Step:
    """Load may have fallen: refused partners may want to know."""
    state, actions = done
    state, notes = tell_of_room(state)
    return state, (*actions, *notes)


def _started(state: Participant, event: Started) -> Step:
    task = event.task
    if task.name in state.holdings:
        raise ContractError(f"{state.name} already runs a task {task.name!r}", hint="Give every task a name of its own")
    own = Holding(replace(task, origin=task.origin or state.name))
    return replace(state, holdings={**state.holdings, task.name: own}).wake(), ()


def _held(state: Participant, event: Held) -> Step:
    """A giver without a contract counts as nobody: the file may have changed since the task came."""
    task = event.task
    contract = None if event.giver is None else state.takes_from.get(event.giver)
    held = Holding(task, contract, event.price)
    away = without(state.away, task.name)
    return replace(state, holdings={**state.holdings, task.name: held}, away=away).wake(), ()


def _ended(state: Participant, event: Ended) -> Step:
    if event.task not in state.holdings:
        raise ContractError(
            f"{state.name} runs no task {event.task!r}", hint="Say so where the task runs now, after its moves"
        )
    recalled = state.recalled - {event.task}
    return replace(state, holdings=without(state.holdings, event.task), recalled=recalled), ()


def _remeasured(state: Participant, event: Remeasured) -> Step:
    """Load and units of tasks as measured, and the cost as learnt; what was agreed under a contract stays."""
    before = state.cost()
    new = {
        task.name: replace(held, task=replace(held.task, load=task.load, units=task.units))
        for task in event.tasks
        if (held := state.holdings.get(task.name)) is not None
    }
    state = replace(state, holdings={**state.holdings, **new}, costs=event.costs or state.costs)
    if state.cost() > before:
        return state.wake(), ()
    return _and_tell((state, ()))
