"""What agents say to each other, version 1: checked on arrival, bounded, nothing unknown let in.

A message is one line of JSON, then, where it carries a table, that table's bytes as `planning/fit/wire` writes
them:

    {"v":1,"kind":"table","network":"figure1","sender":"B","receiver":"A",…}␤<table bytes>

The network's name and the receiver are part of every message, so that one signed for A does nothing at B.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from floodway.agent.wire.refusals import RefusedError

VERSION = 1
COORDINATOR = "coordinator"
"""The name the coordinator goes by as a sender and receiver; in a URL mapping, too."""
OPERATOR = "operator"
"""The name of who may set modes, in a certificate."""
_MOST_ENTRIES = 10_000
_MOST_INPUTS = 1_000
_MOST_ROWS = 4_096
_MOST_LINE = 4 * 2**20

Name = Annotated[str, Field(min_length=1, max_length=310)]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=0, le=2**62)]
Amounts = Annotated[dict[Name, Amount], Field(max_length=_MOST_ENTRIES)]
Shares = Annotated[dict[Name, Share], Field(max_length=_MOST_ENTRIES)]
Inputs = Annotated[tuple[Amount, ...], Field(max_length=_MOST_INPUTS)]


class Message(BaseModel):
    """Common to all: format version, network, who sends and who is meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    path: ClassVar[str]

    v: Literal[1] = 1
    network: Name
    sender: Name
    receiver: Name


class TablePush(Message):
    """A child's table for its parent.

    `version` grows with every table of this sender. `full` carries the table, `delta` the change from the version
    `base`, and `beat` nothing: it asks which version is held and shows that the child is alive. `useful` is the most of
    every input that is of any use to the sender, the range of its table before the parent's reach cuts it. `late` has
    factors of outputs that are late (`planes/lateness.py`), here and in the messages below.
    """

    path: ClassVar[str] = "/v1/table"
    kind: Literal["table"] = "table"
    form: Literal["full", "delta", "beat"]
    version: Number
    base: Number | None = None
    rows: Number = 0
    useful: Inputs = ()
    late: Shares = Field(default_factory=dict)
    table: bytes = Field(default=b"", exclude=True, repr=False)


class TableAck(Message):
    """The answer to a push: the version held now (None: no table), and the most of every input that can come."""

    path: ClassVar[str] = "/v1/table"
    kind: Literal["table-ack"] = "table-ack"
    held: Number | None
    reach: Inputs = ()


class TableReach(Message):
    """A parent's reach has changed: the most of every input that can come to this child from now on."""

    path: ClassVar[str] = "/v1/table"
    kind: Literal["reach"] = "reach"
    reach: Inputs


class NodeStatistics(Message):
    """What a node has measured: rates at its inputs, costs and selectivities of its operators, its capacity scale.

    And the bytes of tuples, by producer, and of what its operators hold.
    """

    path: ClassVar[str] = "/v1/statistics"
    kind: Literal["statistics"] = "statistics"
    number: Number
    rates: Amounts
    costs: Amounts = Field(default_factory=dict)
    selectivities: Amounts = Field(default_factory=dict)
    scale: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    late: Shares = Field(default_factory=dict)
    tuple_bytes: Amounts = Field(default_factory=dict)
    state_bytes: Amounts = Field(default_factory=dict)


class Keeps(Message):
    """Keeps for one member of a cluster, from the member that plans for all."""

    path: ClassVar[str] = "/v1/plan"
    kind: Literal["keeps"] = "keeps"
    number: Number
    keeps: Shares
    late: Shares = Field(default_factory=dict)


class PlanRow(BaseModel):
    """One plan's part for one node: the most (tuples/s) at its streams and links, the keep at its branches."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    plan: Name
    flows: Amounts
    keeps: Shares


class PlanUpload(Message):
    """Rows of the coordinator's plan table; a later generation makes those of earlier ones void."""

    path: ClassVar[str] = "/v1/plan"
    kind: Literal["upload"] = "upload"
    number: Number
    generation: Number
    rows: Annotated[tuple[PlanRow, ...], Field(max_length=_MOST_ROWS)]


class PlanChoice(Message):
    """Use this plan from now on, with its flows times `scale`."""

    path: ClassVar[str] = "/v1/plan"
    kind: Literal["choice"] = "choice"
    number: Number
    generation: Number
    plan: Name
    scale: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    late: Shares = Field(default_factory=dict)


class PlanAck(Message):
    """The answer to an upload or a choice: the generation held, the plan in use, the last number taken.

    `missing` says that the chosen plan has not been uploaded.
    """

    path: ClassVar[str] = "/v1/plan"
    kind: Literal["plan-ack"] = "plan-ack"
    generation: Number | None
    plan: Name | None
    number: Number
    missing: bool = False


class Mode(Message):
    """Switch between dropping, deciding only, and not even that."""

    path: ClassVar[str] = "/v1/mode"
    kind: Literal["mode"] = "mode"
    mode: Literal["observe", "enforce", "off"]


class Noted(Message):
    """The answer where there is nothing to tell but that the message was taken.

    `number` is the highest that was taken from who is answered: one that counts from a clock which was set back, or has
    lost its count, goes on from there.
    """

    path: ClassVar[str] = "/v1/statistics"
    kind: Literal["noted"] = "noted"
    number: Number = 0


AnyMessage = (
    TablePush | TableAck | TableReach | NodeStatistics | Keeps | PlanUpload | PlanChoice | PlanAck | Mode | Noted
)
_ADAPTER: TypeAdapter[AnyMessage] = TypeAdapter(Annotated[AnyMessage, Field(discriminator="kind")])


def encode(message: AnyMessage) -> bytes:
    """The bytes of a message."""
    # Nothing late is the rule, and need not be said.
    line = message.model_dump_json(exclude=None if getattr(message, "late", True) else {"late"}).encode()
    return line + b"\n" + message.table if isinstance(message, TablePush) and message.table else line


def decode(data: bytes, *, network: str, receiver: str) -> AnyMessage:
    """The message in these bytes; refused unless it is whole, of this version and meant for this network and node."""
    line, _, blob = data.partition(b"\n")
    if len(line) > _MOST_LINE:
        raise RefusedError("oversized", f"a message's line is longer than {_MOST_LINE} bytes")
    try:
        message = _ADAPTER.validate_json(line)
    except ValidationError as error:
        if any(problem["loc"][-1:] == ("v",) for problem in error.errors(include_url=False, include_input=False)):
            hint = f"This side speaks version {VERSION}"
            raise RefusedError("version", "a message is of another version", hint=hint) from error
        raise RefusedError("malformed", f"a message has {error.error_count()} wrong field(s)") from error
    if isinstance(message, TablePush):
        if "table" in message.model_fields_set:
            raise RefusedError("malformed", "a table travels behind the message's line")
        message = message.model_copy(update={"table": blob})
    elif blob:
        raise RefusedError("malformed", "bytes follow a message that has none")
    if message.network != network or message.receiver != receiver:
        raise RefusedError("unknown", f"the message is not meant for {receiver!r} of network {network!r}")
    return message
