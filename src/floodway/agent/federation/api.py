"""The offer API: what partners send each other over HTTP, checked for form here and for content by the participant.

    POST /v1/message   an offer, accept, counter, reject, cancel or note of room
    POST /v1/prepare   the giver lets the taker prepare what it accepted
    POST /v1/move      the giver asks the taker to take over what it accepted
    POST /v1/bill      the taker's entries for the giver to book
    GET  /v1/status    load, fragments, moves and what was refused, for operators and not for partners
    GET  /metrics      the same for Prometheus

A definition names fragments and, for comparison, their catalogue entries and parameters; it never holds code. All
numbers are finite: what is no number in a message would be none in every sum and answer that it gets into.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from floodway.agent.federation.errors import FragmentLostError, MoveError
from floodway.agent.federation.journal_rows import BookedEntry
from floodway.agent.watch.metrics import Watched, metrics_route
from floodway.agent.wire.guard import CERTIFICATE, SENDER
from floodway.agent.wire.refusals import RefusedError
from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.contracts.messages import Accept, Cancel, Counter, Message, Move, Offer, Recall, Reject, Room, sender
from floodway.errors import ContractError
from floodway.job.status.batches import Sketch
from floodway.job.status.status import Status
from floodway.json_text import load_json
from floodway.spark.query.catalogue import CatalogueError

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
Parsed = TypeVar("Parsed", bound=BaseModel)
KINDS: dict[str, type[Any]] = {
    "offer": Offer,
    "accept": Accept,
    "counter": Counter,
    "reject": Reject,
    "cancel": Cancel,
    "room": Room,
    "recall": Recall,
}


class Form(BaseModel, extra="forbid", allow_inf_nan=False):
    """A body that partners send; the form of what is inside follows it."""


class MessageForm(Form):
    """An envelope round one message of the negotiation."""

    version: Literal[1] = 1
    kind: Annotated[str, Field(max_length=20)]
    body: dict[str, Any]


class MoveForm(Form):
    """A move with the giver's epochs and the definitions of what moves, by fragment."""

    version: Literal[1] = 1
    move: Move
    epochs: dict[str, Annotated[int, Field(ge=1)]]
    definitions: dict[str, FragmentSpec]


class BillForm(Form):
    """Entries that a taker wants its giver to book."""

    version: Literal[1] = 1
    sender: Annotated[str, Field(max_length=64)]
    entries: Annotated[list[BookedEntry], Field(max_length=1000)]


class Body(Form):
    """The body of a message; for each kind there is one that says of which form it is."""

    body: Any


_BODIES: dict[str, type[Body]] = {
    kind: create_model(f"{form.__name__}Body", __base__=Body, body=(form, ...)) for kind, form in KINDS.items()
}


class MessageReceiver(Protocol):
    """What the API needs of a participant."""

    name: str
    federation: Federation

    @property
    def ready(self) -> bool:
        """Whether it has found out, after its start, what it holds: until then it answers nobody."""
        ...

    def receive(self, message: Message) -> None:
        """Take one message of the negotiation."""
        ...

    def prepare(self, move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> None:
        """Prepare to take over what was accepted, which the giver still runs."""
        ...

    def take(self, move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> dict[str, float]:
        """Take over what was accepted; seconds by phase."""
        ...

    def billed(self, sender: str, entries: list[BookedEntry]) -> dict[str, Any]:
        """Book a partner's entries: the ids of those `booked` now, and by id why others are `refused`."""
        ...

    def latencies(self) -> Sketch:
        """Of all results of the fragments that run here."""
        ...

    def status(self) -> Status:
        """A picture of this participant for people and tests."""
        ...


def envelope(message: Message) -> dict[str, Any]:
    """A message as JSON.

    >>> envelope(Room("A", "B"))
    {'version': 1, 'kind': 'room', 'body': {'giver': 'A', 'taker': 'B'}}
    """
    kind = next(kind for kind, form in KINDS.items() if isinstance(message, form))
    body = _BODIES[kind].model_construct(body=message).model_dump(mode="json")["body"]
    return {"version": VERSION, "kind": kind, "body": body}


def move_body(move: Move, epochs: Mapping[str, int], definitions: Mapping[str, FragmentSpec]) -> dict[str, Any]:
    """A request to take over as JSON."""
    return MoveForm(move=move, epochs=dict(epochs), definitions=dict(definitions)).model_dump(mode="json")


def bill_body(sender: str, entries: list[BookedEntry]) -> dict[str, Any]:
    """A bill as JSON."""
    return BillForm(sender=sender, entries=entries).model_dump(mode="json")


def parse_message(body: object) -> Message:
    """Read an envelope; anything else is refused."""
    form = parsed_form(MessageForm, body)
    if form.kind not in _BODIES:
        raise RefusedError("malformed", f"there is no message {form.kind!r}", hint=f"Kinds are {', '.join(KINDS)}")
    message: Message = parsed_form(_BODIES[form.kind], {"body": form.body}).body
    return message


def routes(member: MessageReceiver) -> list[BaseRoute]:
    """The API of one participant, to be served behind the guard of `agent/wire`."""

    async def heard(request: Request) -> object:
        if not member.ready:
            raise RefusedError("busy", "this participant is starting", hint="Ask again in a moment")
        return await _json(request)

    async def message(request: Request) -> JSONResponse:
        found = parse_message(await heard(request))
        _check_sender(request, sender(found))
        await _called(lambda: member.receive(found))
        return JSONResponse({"ok": True})

    async def prepare(request: Request) -> JSONResponse:
        form = parsed_form(MoveForm, await heard(request))
        _check_sender(request, form.move.giver)
        await _called(lambda: member.prepare(form.move, form.epochs, form.definitions))
        return JSONResponse({"ok": True})

    async def move(request: Request) -> JSONResponse:
        form = parsed_form(MoveForm, await heard(request))
        _check_sender(request, form.move.giver)
        seconds = await _called(lambda: member.take(form.move, form.epochs, form.definitions))
        return JSONResponse({"ok": True, "seconds": seconds})

    async def bill(request: Request) -> JSONResponse:
        form = parsed_form(BillForm, await heard(request))
        _check_sender(request, form.sender)
        return JSONResponse({"ok": True, **await _called(lambda: member.billed(form.sender, form.entries))})

    def admit(request: Request) -> None:
        proved = getattr(request.state, SENDER, None)
        if proved != member.name and proved in member.federation.members:
            raise RefusedError("contract", "figures of a participant are its own", hint="Ask for its read token")

    async def status(request: Request) -> Response:
        admit(request)
        told = await _called(member.status)
        return Response(told.encode(), media_type="application/json")

    return [
        Route("/v1/message", message, methods=["POST"]),
        Route("/v1/prepare", prepare, methods=["POST"]),
        Route("/v1/move", move, methods=["POST"]),
        Route("/v1/bill", bill, methods=["POST"]),
        Route("/v1/status", status, methods=["GET"]),
        metrics_route(lambda: [Watched((told := member.status()).name, told, member.latencies())], admit),
    ]


def _check_sender(request: Request, claimed: str) -> None:
    """Refuse what speaks in another's name than its key or certificate is of; a key that all share tells nothing."""
    proved = getattr(request.state, SENDER, None)
    if proved is None and hasattr(request.state, CERTIFICATE):
        reason = f"a certificate without one commonName speaks in the name of {claimed}"
        raise RefusedError("forged", reason, hint="A member's certificate has its name as commonName")
    if proved is not None and proved != claimed:
        raise RefusedError("forged", f"{proved} speaks in the name of {claimed}", hint="Speak in your own")


async def _called(work: Callable[[], Any]) -> Any:
    """Do it on a thread, as it may wait for Spark; what breaks a contract is refused, and counted as that."""
    try:
        return await run_in_threadpool(work)
    except (ContractError, MoveError, FragmentLostError, CatalogueError) as error:
        raise RefusedError("contract", error.message, hint=error.hint) from None


async def _json(request: Request) -> object:
    try:
        found: object = load_json(await request.body())
    except (ValueError, RecursionError):
        raise RefusedError("malformed", "the body is not JSON") from None
    return found


def parsed_form(form: type[Parsed], body: object) -> Parsed:
    """A body of this form; anything else is refused."""
    try:
        return form.model_validate(body)
    except ContractError as error:  # a task that no task can be
        raise RefusedError("contract", error.message) from None
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: ValidationError) -> RefusedError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    reason = "version" if first["loc"] == ("version",) else "malformed"
    return RefusedError(reason, f"{where}: {first['msg'].lower()}"[:300])
