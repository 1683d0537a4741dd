"""What is settled leaves the shared storage too, so that it does not grow with every move.

Each side of a move notes on the storage when its journal has forgotten the move (`settlement.py`). When both have, the
giver removes the move's decision, unless a lease in force names it. A decision to withdraw needs the giver's note
alone. The origin of a fragment lets old leases be past: `past.json` keeps who has the fragment from whom, and the spans
of moves that somebody may still bill. Files stay of the newest two leases, and of the leases that an unsettled move
has to look at: the giver's, the taker's and the next.

One process removes each file: the giver's, or the origin's. What is removed is older than a week, so no listing that a
file system has cached still shows it, and a participant that slept meanwhile finds its lease below the past epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path

from floodway.agent.federation.errors import StorageError
from floodway.agent.federation.leases import LeaseStore, MoveDecision
from floodway.agent.federation.spans import following
from floodway.job.store.store import remove_drafts

log = logging.getLogger(__name__)

LOOKED_AT = 3
"""Leases from the giver's on that tell how a move ended (`spans.came_to_pass`)."""


def remove_leftovers(root: Path) -> None:
    """Remove drafts of members that were killed while they wrote to the shared storage."""
    for folder in (root, root / "fragments"):
        remove_drafts(folder, time.time())


def settle_storage(store: LeaseStore, name: str, before: float) -> None:
    """Remove what this participant may remove of what ended before a time; what cannot be read is left, and said."""
    try:
        unsettled = []
        for decision in store.decisions():
            if decision.giver == name and store.is_settled(decision) and not _is_in_force(store, decision):
                store.forget_move(decision)
            else:
                unsettled.append(decision)
        for fragment in store.fragments():
            _settle_leases(store, fragment, name, before, unsettled)
    except StorageError as error:
        log.warning("%s does not remove what is settled: %s", name, error)


def _is_in_force(store: LeaseStore, decision: MoveDecision) -> bool:
    """Whether a fragment is held by this move: a participant that starts asks for its decision."""
    leases = (store.current(fragment) for fragment in decision.epochs)
    return any(lease is not None and lease.move == decision.id for lease in leases)


def _settle_leases(
    store: LeaseStore, fragment: str, name: str, before: float, unsettled: Collection[MoveDecision]
) -> None:
    past = store.past(fragment)
    leases = store.history(fragment, after=past.epoch)
    chain = following(past, leases[:1]).chain
    if not chain or chain[0][0] != name:
        return
    ended = takewhile(lambda pair: pair[1].since < before, pairwise(leases[:-1]))
    past = following(past, [lease for lease, _ in ended])
    known = {decision.id for decision in unsettled} | {move for _, move in past.chain}
    needed = {
        decision.epochs[fragment] + number
        for decision in unsettled
        if fragment in decision.epochs
        for number in range(LOOKED_AT)
    }
    spans = {move: span for move, span in past.spans.items() if move in known}
    store.forget_leases(fragment, replace(past, spans=spans), needed)
