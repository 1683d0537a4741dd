"""What members of a federation read of each other: messages, moves, bills, and files on the storage that they share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodway.agent.federation import api
from floodway.agent.federation.credentials import check_move, checked
from floodway.agent.federation.journal_rows import BookedEntry
from floodway.agent.federation.leases import LeasePast, LeaseStore, MoveDecision
from floodway.agent.federation.spans import following
from floodway.agent.wire.refusals import RefusedError
from floodway.contracts.federation_file import Federation
from floodway.contracts.load import Load, Task
from floodway.contracts.machine import step
from floodway.contracts.messages import Accept, Cancel, Counter, Held, Message, Move, Offer, Recall, Reject, Room, Tick
from floodway.contracts.participant_state import participant
from floodway.contracts.payment import Payment, PaymentReason
from floodway.json_text import load_json


@dataclass(frozen=True)
class Reader:
    """`read` raises a `FloodwayError` for what it refuses; `weight` is its part of the points."""

    corpus: Sequence[bytes]
    read: Callable[[bytes], None]
    weight: int


class EffectError(Exception):
    """An input that was refused and has changed something, or was damaged and is said to be sound."""


NOW = 1_000_000.0
TASK = Task("f0", Load(0.6), units=0.6, kind="sum", origin="A")
MOVE = Move("A/0", "A", "B", 4.0, (TASK,))


def partner_readers(federation: Federation, folder: Path) -> Mapping[str, Reader]:
    """Those of member B, which A made an offer to, and of A, which waits for the answer."""
    offer = Offer(*(MOVE.id, MOVE.giver, MOVE.taker, MOVE.price), MOVE.tasks)
    machines = {name: participant(name, one.costs(), federation.contracts) for name, one in federation.members.items()}
    giver, _ = step(machines["A"], Held(TASK), NOW)
    giver, _ = step(giver, Tick(), NOW)
    taker, _ = step(machines["B"], offer, NOW)
    accepted, _ = step(taker, Tick(), NOW)

    def heard_by(*states: Any) -> Callable[[object], None]:
        def read(body: object) -> None:
            message = checked(api.parse_message(body), federation)
            for state in states:
                step(step(state, message, NOW + 0.1)[0], Tick(), NOW + 0.2)

        return read

    def moved(body: object) -> None:
        form = api.parsed_form(api.MoveForm, body)
        check_move(form.move, MOVE, form.epochs, form.definitions, federation.fragments)

    def billed(body: object) -> None:
        api.parsed_form(api.BillForm, body)

    to_taker: list[Message] = [offer, Cancel("A/0", "A", "B"), Recall("A", "B", ("f0",))]
    to_giver: list[Message] = [Accept("A/0", "A", "B", 4.0, ("f0",)), Counter("A/0", "A", "B", 5.0)]
    to_giver += [Reject("A/0", "A", "B"), Room("A", "B")]
    entry = BookedEntry(Payment("A/0/f0/load/0.000", "A", "B", 1.0, PaymentReason.LOAD, NOW), "A/0", 0.0, 0.5, keep=0.9)
    fragments = {"f0": federation.fragments["f0"]}
    return {
        "offers": _json_reader([*map(api.envelope, to_taker)], heard_by(machines["B"], taker, accepted), 15),
        "answers": _json_reader([*map(api.envelope, to_giver)], heard_by(giver), 15),
        "moves": _json_reader([api.move_body(MOVE, {"f0": 1}, fragments)], moved, 10),
        "bills": _json_reader([api.bill_body("B", [entry])], billed, 10),
        **_stored(folder),
    }


def _json_reader(bodies: list[dict[str, Any]], read: Callable[[object], None], weight: int) -> Reader:
    def parsed(data: bytes) -> None:
        try:
            body = load_json(data)
        except ValueError:
            raise RefusedError("malformed", "the body is not JSON") from None
        read(body)

    return Reader([json.dumps(body).encode() for body in bodies], parsed, weight)


def _stored(folder: Path) -> dict[str, Reader]:
    """A lease, what those before came to, and the decision of a move, as a member finds them on the storage."""
    store = LeaseStore(folder / "shared")
    store.claim("f0", "A", after=0, now=NOW)
    store.decide(MoveDecision("A/0", "A", "B", True, NOW, 4.0, {"f0": 1}, {"f0": 0.6}))
    (lease,) = (folder / "shared" / "fragments").rglob("*.json")
    (decision,) = (folder / "shared" / "moves").glob("*.json")

    def held(data: bytes) -> None:
        lease.write_bytes(data)
        store.current("f0")
        store.history("f0")

    def decided(data: bytes) -> None:
        decision.write_bytes(data)
        store.decision("A/0")

    other = LeaseStore(folder / "older")
    for epoch in range(3):
        other.claim("f0", "AB"[epoch % 2], after=epoch, now=NOW, move="A/0" if epoch == 1 else None)
    other.forget_leases("f0", following(LeasePast(), other.history("f0")[:2]), ())
    (past,) = (folder / "older" / "fragments").rglob("past.json")

    def settled(data: bytes) -> None:
        past.write_bytes(data)
        following(other.past("f0"), other.history("f0", after=2))

    return {
        "lease-pasts": Reader([past.read_bytes()], settled, 3),
        "leases": Reader([lease.read_bytes()], held, 3),
        "move-decisions": Reader([decision.read_bytes()], decided, 3),
    }
