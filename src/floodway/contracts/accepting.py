"""ACCEPT_LOAD: the taker's half of the protocol (contracts paper, Figure 3 and section 3.2.3).

Offers gather for a while and are answered together, the best paid first. Room for what is accepted is reserved at
once, so a later offer is judged on top of it. Who gets nothing is told the price at which one task would fit, if the
contract's range holds it, and is remembered: when load falls, it gets a note that there is room.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from floodway.contracts.contract import Contract, with_partner
from floodway.contracts.cost import rounded_price, worth_accepting
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Accept, Action, Arrived, Cancel, Counter, Move, Offer, Reject, Room, Send
from floodway.contracts.participant_state import Holding, Participant, Refusal, Reservation, without
from floodway.contracts.selection import accept_set, asking_price
from floodway.contracts.taking_back import worth_at_home
from floodway.errors import ContractError

Step = tuple[Participant, tuple[Action, ...]]


def on_offer(state: Participant, offer: Offer, now: float) -> Step:
    """Keep a valid offer until it is time to answer; one that breaks the contract is refused with an error."""
    contract = with_partner(state.takes_from, offer.giver, me=state.name)
    if offer.taker != state.name:
        raise ContractError(f"offer {offer.id} is for {offer.taker}, not {state.name}", hint="Check the address")
    if not offer.tasks:
        raise ContractError(f"offer {offer.id} holds no task", hint="Offer at least one")
    contract.check(offer.price, offer.tasks)
    names = [task.name for task in offer.tasks]
    taken = sorted({name for name in names if names.count(name) > 1 or name in state.holdings})
    if taken:
        raise ContractError(
            f"offer {offer.id} holds tasks that already run at {state.name} or come twice: {', '.join(taken)}",
            hint="Give every task a name of its own in the whole federation",
        )
    if offer.id in state.reserved or any(other.id == offer.id for other in state.inbox):
        return state, ()
    # A partner has one offer open at a time: a newer one stands for the older.
    others = tuple(other for other in state.inbox if other.giver != offer.giver)
    gather_until = state.gather_until if state.inbox else now + state.settings.gather_seconds
    return replace(state, inbox=(*others, offer), gather_until=gather_until), ()


def forget_promises(state: Participant, now: float) -> Step:
    """On a tick: free the room of tasks that took too long to come, and tell those who were refused for it."""
    patience = state.settings.arrival_seconds
    kept = {key: found for key, found in state.reserved.items() if now - found.since < patience}
    if len(kept) == len(state.reserved):
        return state, ()
    return tell_of_room(replace(state, reserved=kept))


def answer_offers(state: Participant, now: float) -> Step:
    """On a tick, once offers have gathered long enough: answer all of them, highest unit price first."""
    if not state.inbox or now < state.gather_until:
        return state, ()
    offers, state = sorted(state.inbox, key=lambda offer: -offer.price), replace(state, inbox=())
    actions: list[Action] = []
    for offer in offers:
        state, answer = _answer(state, offer, now)
        actions.append(answer)
    return state, tuple(actions)


def _answer(state: Participant, offer: Offer, now: float) -> tuple[Participant, Send]:
    contract = state.takes_from[offer.giver]
    load = state.promised

    def bearable(candidate: Load) -> bool:
        return state.bearable(candidate, also=contract)

    chosen = accept_set(
        state.costs, load, offer.tasks, offer.price, bearable=bearable, also_worth=worth_at_home(state, offer.giver)
    )
    if chosen:
        move = Move(offer.id, offer.giver, offer.taker, offer.price, chosen)
        state = replace(
            state,
            reserved={**state.reserved, offer.id: Reservation(move, now)},
            refused=without(state.refused, offer.giver),
        )
        names = tuple(task.name for task in chosen)
        return state, Send(Accept(offer.id, offer.giver, offer.taker, offer.price, names))
    quote = _quote(state, contract, offer.tasks)
    state = replace(state, refused={**state.refused, offer.giver: Refusal(quote, offer.tasks)})
    if offer.price < quote < inf:
        return state, Send(Counter(offer.id, offer.giver, offer.taker, quote))
    return state, Send(Reject(offer.id, offer.giver, offer.taker))


def _quote(state: Participant, contract: Contract, tasks: tuple[Task, ...]) -> float:
    """The price at which one of the tasks would fit now, within the contract's range; infinite if there is none."""
    asked = asking_price(state.costs, state.promised, tasks, bearable=lambda load: state.bearable(load, also=contract))
    if asked is None or not worth_accepting(asked, contract.max_price):
        return inf
    return contract.clamp(rounded_price(asked))


def on_arrived(state: Participant, event: Arrived) -> Step:
    """The tasks of a move run here: from now on they count as load, and this participant may have to shed."""
    move = event.move
    if move.id not in state.reserved:
        if all(task.name in state.holdings for task in move.tasks):
            return state, ()
        raise ContractError(
            f"move {move.id} from {move.giver} brings tasks that {state.name} did not accept",
            hint="Offer them first; a promise lapses when the tasks take too long to come",
        )
    contract = with_partner(state.takes_from, move.giver, me=state.name)
    promised = {task.name: task for task in state.reserved[move.id].move.tasks}
    strange = sorted(task.name for task in move.tasks if task.name not in promised)
    if strange:
        raise ContractError(
            f"move {move.id} brings tasks that were not accepted: {', '.join(strange)}", hint="Move what was accepted"
        )
    new = {
        # What has come home is one's own again: nobody pays for it, and no contract limits where it goes next.
        task.name: Holding(task) if task.origin == state.name else Holding(task, contract, move.price)
        for task in (promised[task.name] for task in move.tasks)
    }
    return replace(
        state,
        reserved=without(state.reserved, move.id),
        holdings={**state.holdings, **new},
        away={name: found for name, found in state.away.items() if name not in new},
    ).wake(), ()


def on_cancel(state: Participant, cancel: Cancel) -> Step:
    """The giver takes an offer back: forget it, and free the room kept for it."""
    with_partner(state.takes_from, cancel.giver, me=state.name)
    inbox = tuple(offer for offer in state.inbox if (offer.id, offer.giver) != (cancel.id, cancel.giver))
    found = state.reserved.get(cancel.id)
    if found is not None and found.move.giver == cancel.giver:
        state = replace(state, reserved=without(state.reserved, cancel.id))
    return replace(state, inbox=inbox), ()


def tell_of_room(state: Participant) -> Step:
    """After load fell: tell each refused partner, once, that one of its tasks would now fit for less than before."""
    if not state.settings.notifications:
        return state, ()
    told = [
        giver
        for giver, refusal in state.refused.items()
        if _quote(state, state.takes_from[giver], refusal.tasks) < refusal.quote
    ]
    left = {giver: refusal for giver, refusal in state.refused.items() if giver not in told}
    return replace(state, refused=left), tuple(Send(Room(giver, state.name)) for giver in told)
