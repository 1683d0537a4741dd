"""What a partner says, held against this member's own file before the contract machine hears it.

A key or a certificate proves who speaks, not that what is said is so. What a fragment is (its entry, its query, whose
it is) is therefore taken from the file, whatever the message claims; a number is the partner's own, `GIVER/DIGITS`, so
that nobody uses up another's; and a request to take over names the fragments that were accepted, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from floodway.agent.federation.errors import MoveError
from floodway.contracts.errors import ContractError
from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.contracts.load import Task
from floodway.contracts.messages import Accept, Answer, Cancel, Message, Move, Offer

_NUMBER = re.compile(r"[0-9]{1,12}")
_SHOWN = 80
"""How much of what a partner wrote is repeated in a message."""


def checked(message: Message, federation: Federation) -> Message:
    """The message as this member's file has it; `ContractError` for one that cannot be meant."""
    if isinstance(message, Offer | Answer | Cancel):
        check_id(message.id, message.giver)
    if isinstance(message, Offer):
        return replace(message, tasks=tuple(as_filed(task, federation.fragments) for task in message.tasks))
    if isinstance(message, Accept) and len(set(message.tasks)) < len(message.tasks):
        raise ContractError(f"answer {message.id} accepts a fragment twice", hint="Accept each once")
    return message


def check_id(identity: str, giver: str) -> None:
    """Refuse a number that is not one of the giver's: it names files, and must not be a third member's.

    >>> check_id("A/4", "A")
    >>> check_id("A/4", "B")
    Traceback (most recent call last):
    ...
    floodway.contracts.errors.ContractError: 'A/4' is no number of an offer of B. Write it as B/0
    """
    owner, _, number = identity.partition("/")
    if owner != giver or not _NUMBER.fullmatch(number):
        raise ContractError(
            f"{identity[:_SHOWN]!r} is no number of an offer of {giver[:_SHOWN]}",
            hint=f"Write it as {giver[:_SHOWN]}/0",
        )


def as_filed(task: Task, fragments: Mapping[str, FragmentSpec]) -> Task:
    """A task whose entry, query and origin are the file's; its load and units are the giver's to say."""
    spec = fragments.get(task.name)
    if spec is None:
        raise ContractError(f"there is no fragment {task.name[:_SHOWN]!r}", hint="Give all members the same file")
    return replace(task, kind=spec.run, query=spec.query, origin=spec.owner)


def check_move(
    move: Move,
    agreed: Move,
    epochs: Mapping[str, int],
    definitions: Mapping[str, FragmentSpec],
    fragments: Mapping[str, FragmentSpec],
) -> Move:
    """What of the agreed move is asked for now; refused unless price, fragments, leases and definitions are those."""
    check_id(move.id, move.giver)
    if (agreed.giver, agreed.taker, agreed.price) != (move.giver, move.taker, move.price):
        raise ContractError(f"move {move.id} is not what was accepted", hint="Move at the price agreed")
    names = {task.name for task in move.tasks}
    tasks = tuple(as_filed(task, fragments) for task in agreed.tasks if task.name in names)
    if names != {task.name for task in tasks}:
        raise ContractError(f"move {move.id} holds fragments that were not accepted", hint="Move what was accepted")
    if set(epochs) != names:
        # A lease is claimed for every fragment that has an epoch here, so one too many would be a theft.
        raise ContractError(f"move {move.id} names leases of other fragments", hint="Name those of what moves")
    for name in sorted(names):
        if definitions.get(name) != fragments[name]:
            raise MoveError(f"fragment {name!r} is defined otherwise at {move.taker}", hint="Give all the same file")
    return replace(agreed, tasks=tasks)
