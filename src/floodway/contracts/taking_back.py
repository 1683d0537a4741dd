"""Taking back: an origin whose load has fallen asks a partner for a task of its own. Off unless a member asks for it.

Contracts alone move nothing when load falls (contracts paper, Figure 13): the origin goes on paying, and the partner is
glad of it. With `Settings.take_back` the origin compares what it pays with what the task would cost at home:

    ask back u  where  MC(u, load)  <  MARGIN · units(u) · price                  for CALM_PERIODS periods on end,
                and    MC(v, load + u − v)  <  MARGIN · units(v) · lowest price   for all v that would then run here

The holder then offers the task as it offers anything, under its contract with the origin, and the origin judges the
offer by the first rule, on the load that the holder measures now. By the second nothing is then worth offering, and the
margin is the hysteresis: at one load nothing goes to and fro, not even another task in exchange. A task that was passed
on is not with the partner that is paid for it, and stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodway.contracts.contract import with_partner
from floodway.contracts.cost import added_cost, saved_cost
from floodway.contracts.messages import Action, Offer, Recall, Send
from floodway.contracts.participant_state import Away, Participant, Search

Step = tuple[Participant, tuple[Action, ...]]
MARGIN = 0.9
"""Below which share of what is paid a task must cost at home."""
CALM_PERIODS = 3
"""For how many periods it must have done so before it is asked for."""
AGAIN_PERIODS = 30
"""After how many periods it is asked for again, if the holder does not offer it."""


def ask_back(state: Participant, now: float) -> Step:
    """On a tick, at the origin: ask for the task that saves most, once it has been cheaper at home for long enough."""
    if not state.settings.take_back or not state.away:
        return state, ()
    away = {name: replace(found, cheap_since=_cheap_since(state, found, now)) for name, found in state.away.items()}
    state = replace(state, away=away)
    if state.search is not None or state.moving or state.reserved:
        return state, ()
    period = state.settings.period_seconds
    ready = [
        found
        for found in away.values()
        if found.cheap_since is not None
        and now - found.cheap_since >= CALM_PERIODS * period
        and now - found.asked >= AGAIN_PERIODS * period
        and found.taker in state.gives_to
    ]
    if not ready:
        return state, ()
    best = max(ready, key=lambda found: found.task.units * found.price - _cost_at_home(state, found))
    asked = {**away, best.task.name: replace(best, asked=now)}
    return replace(state, away=asked), (Send(Recall(state.name, best.taker, (best.task.name,))),)


def worth_at_home(state: Participant, holder: str) -> Mapping[str, float]:
    """At the origin, of each task that `holder` was asked for: what having it back may cost."""
    if not state.settings.take_back:
        return {}
    asked = [found for found in state.away.values() if found.taker == holder and found.cheap_since is not None]
    return {found.task.name: MARGIN * found.task.units * found.price for found in asked}


def on_recall(state: Participant, recall: Recall) -> Step:
    """At the holder: note what is asked back; what it does not hold from that partner is passed over."""
    with_partner(state.takes_from, recall.giver, me=state.name)
    home = with_partner(state.gives_to, recall.giver, me=state.name)
    theirs = {task.name for task in state.movable(home) if task.origin == recall.giver}
    return replace(state, recalled=state.recalled | (theirs & set(recall.tasks))), ()


def offer_home(state: Participant, now: float) -> Step:
    """On a tick, at the holder: offer one origin what it asked back, once; whether it wants it still is its answer."""
    if not state.recalled or state.search is not None or state.moving:
        return state, ()
    wanted = [held.task for name, held in state.holdings.items() if name in state.recalled]
    homes = [state.gives_to[task.origin] for task in wanted if task.origin in state.gives_to]
    state = replace(state, recalled=frozenset())
    if not homes:
        return state, ()
    home = homes[0]
    tasks = tuple(task for task in state.movable(home) if task in wanted and task.origin == home.taker)
    left = frozenset(task.name for task in wanted if task.origin != home.taker)
    if not tasks:
        return replace(state, recalled=left), ()
    offer = Offer(f"{state.name}/{state.serial}", state.name, home.taker, home.min_price, tasks)
    # No other price and no other partner: whatever the answer is, the pass is over, and no reason to sleep.
    search = Search({}, offer, now)
    return replace(state, search=search, serial=state.serial + 1, recalled=left, stirred=True), (Send(offer),)


def _cost_at_home(state: Participant, found: Away) -> float:
    return added_cost(state.costs, state.promised, found.task)


def _cheap_since(state: Participant, found: Away, now: float) -> float | None:
    if _cost_at_home(state, found) >= MARGIN * found.task.units * found.price:
        return None
    lowest = min((contract.min_price for contract in state.gives_to.values()), default=0.0)
    after = state.promised + found.task.load
    here = (found.task, *(held.task for held in state.holdings.values()))
    if any(saved_cost(state.costs, after, task) >= MARGIN * task.units * lowest for task in here):
        return None
    return now if found.cheap_since is None else found.cheap_since
