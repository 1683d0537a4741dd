"""Who a message is from: one key a pair of members, so that nobody can speak in the name of a third.

    key from A to B = HMAC-SHA256(key of A and B, "A->B")

A and B alone have their key, C can sign as neither to the other. Each direction signs with a key derived from it, so
that what B sent to A, played back to B, is nobody's. Certificates do the same by their commonName.

What a partner says, held against this member's own file before the contract machine hears it.

A key or a certificate proves who speaks, not that what is said is so. What a fragment is (its entry, its query, whose
it is) is therefore taken from the file, whatever the message claims; a number is the partner's own, `GIVER/DIGITS`, so
that nobody uses up another's; and a request to take over names the fragments that were accepted, and no others.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from floodway.agent.federation.errors import MoveError
from floodway.agent.wire.guard import is_loopback
from floodway.agent.wire.signing import LEAST_KEY_BYTES, MAKE_KEY, Security, read_secret
from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.contracts.load import Task
from floodway.contracts.messages import Accept, Answer, Cancel, Message, Move, Offer
from floodway.errors import ContractError, InputError


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a member proves itself with: `pairs` by partner, else what `shared` holds: one key of all, certificates.

    A key in `shared` without `pairs` is trust in all who have it: any of them can speak in any name.
    """

    name: str
    shared: Security = field(default_factory=Security)
    pairs: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        owners: dict[bytes, str] = {}
        for partner, key in self.pairs.items():
            if len(key) < LEAST_KEY_BYTES:
                raise InputError(f"the key with {partner} is shorter than {LEAST_KEY_BYTES} bytes", hint=MAKE_KEY)
            if owners.setdefault(key, partner) != partner:
                raise InputError(
                    f"{self.name} has the same key with {owners[key]} and with {partner}",
                    hint="Give every pair a key of its own, or they can speak in each other's name",
                )

    def receiving(self) -> Security:
        """How messages to this member are checked."""
        if not self.pairs:
            return self.shared
        keys = {partner: directed(key, partner, self.name) for partner, key in self.pairs.items()}
        return Security(tls=self.shared.tls, senders=keys, token=self.shared.token)

    def sending(self, partner: str) -> Security:
        """How messages to a partner are signed."""
        if not self.pairs:
            return self.shared
        if partner not in self.pairs:
            raise InputError(f"{self.name} has no key with {partner}", hint="Name one in the file's section keys")
        return Security(directed(self.pairs[partner], self.name, partner), self.shared.tls)

    def check_address(self, host: str) -> None:
        """Refuse an address that others can reach where one key is all that tells members apart."""
        if not is_loopback(host) and not self.pairs and self.shared.tls is None and self.shared.key is not None:
            raise InputError(
                f"address {host} can be reached from outside, and all members share one key",
                hint="Name a key for every pair in the file's section keys, or use certificates; "
                "one key for all is for loopback",
            )


def directed(key: bytes, sender: str, receiver: str) -> bytes:
    """The key that only `sender` signs with, and only to `receiver`.

    >>> directed(b"k" * 32, "A", "B") == directed(b"k" * 32, "B", "A")
    False
    """
    return hmac.digest(key, f"{sender}->{receiver}".encode(), "sha256")


def load_pairs(federation: Federation, name: str, folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The keys that this member has with its partners, from where the file says; other pairs' are not touched."""
    found: dict[str, bytes] = {}
    for pair, source in federation.keys.items():
        if name not in pair:
            continue
        (partner,) = pair - {name}
        if source.env is not None:
            key = environ.get(source.env, "").strip().encode()
            if not key:
                raise InputError(f"{source}, the key of {name} and {partner}, is not set", hint=MAKE_KEY)
        else:
            key = read_secret(f"key of {name} and {partner}: key", folder / (source.file or ""))
        found[partner] = key
    return found


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
    floodway.errors.ContractError: 'A/4' is no number of an offer of B. Write it as B/0
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
