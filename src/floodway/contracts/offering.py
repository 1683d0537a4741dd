"""OFFER_LOAD: the giver's half of the protocol (contracts paper, Figure 2 and section 3.2.3).

One pass over the contracts goes to the lowest open price first: at the start each partner's lowest price, later
whatever a partner asked for in a counter-offer. A partner that did not take what it was offered is offered lighter
tasks, which may fit where the heaviest do not, before its next price is tried. A pass ends with the first accepted
task, or when no open price is below the marginal cost of a task that may move. Offers go to one partner at a time, so
nothing is booked twice; no task is offered to a partner twice at one price, so a pass is finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from floodway.contracts.contract import with_partner
from floodway.contracts.load import Task
from floodway.contracts.messages import Accept, Action, Answer, Cancel, Counter, Move, Moved, MoveFailed, Offer, Send
from floodway.contracts.participant_state import Away, Participant, Search, without
from floodway.contracts.selection import offer_set, still_open
from floodway.errors import ContractError

Step = tuple[Participant, tuple[Action, ...]]


def try_to_shed(state: Participant, now: float) -> Step:
    """On a tick: give up an offer nobody answered; start a pass where one is due and nothing is on its way."""
    search = state.search
    if search is not None and now - search.since >= state.settings.answer_seconds:
        lost = search.offer
        state, actions = _next_offer(state, without(search.quotes, lost.taker), search.refused, now)
        return state, (Send(Cancel(lost.id, lost.giver, lost.taker)), *actions)
    if search is not None or state.moving or now < state.next_try:
        return state, ()
    # Periods go on during sleep: one who is woken looks for partners at its next period, not at once.
    state = replace(state, next_try=now + state.settings.period_seconds)
    if now < state.asleep_until:
        return state, ()
    state = replace(state, stirred=False)
    return _next_offer(state, {taker: contract.min_price for taker, contract in state.gives_to.items()}, {}, now)


def on_answer(state: Participant, answer: Answer, now: float) -> Step:
    """Accepted: move. Countered: remember the price and go to whoever is cheapest now. Rejected: go on with the rest.

    An answer to an offer that is no longer open is cancelled if it reserved room, otherwise ignored.
    """
    contract = with_partner(state.gives_to, answer.taker, me=state.name)
    search = state.search
    if search is None or search.offer.id != answer.id:
        late = isinstance(answer, Accept) and answer.id not in state.moving
        return state, (Send(Cancel(answer.id, state.name, answer.taker)),) if late else ()
    if search.offer.taker != answer.taker:
        raise ContractError(
            f"{answer.taker} answered offer {answer.id}, which went to {search.offer.taker}",
            hint="Only the partner an offer was made to may answer it",
        )
    if isinstance(answer, Accept):
        return _accepted(state, search.offer, answer)
    asked = inf
    if isinstance(answer, Counter):
        contract.check(answer.price, ())
        if answer.price > search.offer.price:
            asked = answer.price
    known = search.refused.get(answer.taker, ())
    refused = (*known, *((task, asked) for task in search.offer.tasks))
    return _next_offer(state, search.quotes, {**search.refused, answer.taker: refused}, now)


def on_moved(state: Participant, event: Moved) -> Step:
    """The move is complete: its tasks run elsewhere, but for those that stayed."""
    move = state.moving.get(event.id)
    if move is None:
        return state, ()
    gone = {task.name: task for task in move.tasks if task.name not in event.stayed}
    away = {name: Away(task, move.taker, move.price) for name, task in gone.items() if task.origin == state.name}
    return replace(
        state,
        moving=without(state.moving, event.id),
        holdings={name: holding for name, holding in state.holdings.items() if name not in gone},
        away={**state.away, **away},
        recalled=state.recalled - gone.keys(),
    ), ()


def on_move_failed(state: Participant, event: MoveFailed, now: float) -> Step:
    """The move did not happen: the tasks stay, and the partner may forget its promise."""
    move = state.moving.get(event.id)
    if move is None:
        return state, ()
    cancel = Send(Cancel(move.id, move.giver, move.taker))
    next_try = max(state.next_try, now + event.wait_seconds)
    return replace(state, moving=without(state.moving, event.id), next_try=next_try), (cancel,)


def _accepted(state: Participant, offer: Offer, answer: Accept) -> Step:
    offered = {task.name: task for task in offer.tasks}
    strange = [name for name in answer.tasks if name not in offered]
    if strange or not answer.tasks or answer.price != offer.price:
        wrong = f"tasks {strange}" if strange else f"{len(answer.tasks)} tasks at price {answer.price}"
        raise ContractError(
            f"{answer.taker} accepted {wrong}, which offer {offer.id} does not hold",
            hint="Accept some of the tasks offered, at the price offered",
        )
    # A task may have ended since it was offered; what is left of it still goes.
    tasks = tuple(offered[name] for name in answer.tasks if name in state.holdings)
    if not tasks:
        return replace(state, search=None), (Send(Cancel(offer.id, offer.giver, offer.taker)),)
    move = Move(offer.id, offer.giver, offer.taker, offer.price, tasks)
    return replace(state, search=None, moving={**state.moving, move.id: move}), (move,)


def _next_offer(
    state: Participant,
    quotes: Mapping[str, float],
    refused: Mapping[str, tuple[tuple[Task, float], ...]],
    now: float,
) -> Step:
    """Offer what is not refused yet to the partner with the lowest open price.

    One to which nothing is worth offering any more is asked at its next price, if it named one, or struck off.
    """
    open_quotes = dict(quotes)
    while open_quotes:
        taker = min(open_quotes, key=open_quotes.__getitem__)
        price, known = open_quotes[taker], refused.get(taker, ())
        movable = still_open(state.movable(state.gives_to[taker]), known, price)
        tasks = offer_set(state.costs, state.load, movable, price, migration_cost=state.settings.migration_cost)
        if tasks:
            offer = Offer(f"{state.name}/{state.serial}", state.name, taker, price, tasks)
            search = Search(open_quotes, offer, now, refused)
            return replace(state, search=search, serial=state.serial + 1), (Send(offer),)
        higher = [asked for _, asked in known if price < asked < inf]
        if higher:
            open_quotes[taker] = min(higher)
        else:
            del open_quotes[taker]
    sleep = state.settings.wake_seconds if state.settings.notifications and not state.stirred else 0.0
    return replace(state, search=None, asleep_until=now + sleep), ()
