"""A node under a coordinator: it holds the rows uploaded to it, uses the plan last chosen, and reports what it sees.

When the coordinator falls silent the plan stays; as its flows are applied as min(F, r), it goes on to suit falling
rates, and rising ones are cut to what was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from floodway.agent.planes.agent import is_fresh, silence
from floodway.agent.planes.alone import AgentPlanner
from floodway.agent.planes.coordinator_state import WHOLE
from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures
from floodway.agent.planes.dfit.state import stamp, statistics
from floodway.agent.wire.messages import (
    COORDINATOR,
    AnyMessage,
    Name,
    Noted,
    Number,
    PlanAck,
    PlanChoice,
    PlanRow,
    PlanUpload,
)
from floodway.agent.wire.refusals import RefusedError
from floodway.network.model import Network
from floodway.planning.plan import Planner
from floodway.planning.program import Vector

_MOST_ROWS = 5_000
_LINK_SLACK = 1.05
"""A link may bring this much more than planned before it is cut: its rate is a sample, and was cut at its source."""


@dataclass(frozen=True, slots=True)
class UploadedState:
    """What a node holds. `row` is the plan in use (None with `plan` WHOLE: drop nothing; with None: none yet)."""

    rows: Mapping[str, PlanRow] = field(default_factory=dict)
    generation: int | None = None
    plan: str | None = None
    row: PlanRow | None = None
    scale: float = 1.0
    heard_number: int = 0
    heard_seconds: float | None = None
    rates: Mapping[str, float] | None = None
    measured: NodeMeasures = UNMEASURED
    number: int = 0
    report_due_seconds: float = 0.0


class _Record(BaseModel):
    """What a restart needs: the plan in use. Other rows are uploaded again when they are chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    version: int = 1
    network: Name = ""
    node: Name = ""
    generation: Number | None
    plan: Name | None
    row: PlanRow | None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class CoordinatedNode:
    """The machine of a node under a coordinator: which node it is, and how often it reports."""

    shares_target: ClassVar[bool] = True
    network: Network
    name: str
    headroom: float = 1.0
    report_seconds: float = 0.5
    timeout_seconds: float = 10.0

    def first(self) -> UploadedState:
        """Before the first plan."""
        return UploadedState()

    def observe(
        self, state: UploadedState, rates: Mapping[str, float], measured: NodeMeasures, now: float
    ) -> UploadedState:
        """Keep what the node has measured for the next report."""
        return replace(state, rates=dict(rates), measured=measured)

    def hear(self, state: UploadedState, message: AnyMessage, now: float) -> tuple[UploadedState, AnyMessage | None]:
        """Take an upload or a choice from the coordinator."""
        if message.sender != COORDINATOR:
            raise RefusedError("unknown", f"{message.sender!r} is not the coordinator")
        state = replace(state, heard_seconds=now)
        missing = False
        if isinstance(message, PlanUpload):
            if state.generation is None or message.generation >= state.generation:
                before = state.rows if message.generation == state.generation else {}
                rows = {**before, **{row.plan: row for row in message.rows}}
                if len(rows) > _MOST_ROWS:
                    rows = {row.plan: row for row in message.rows}
                state = replace(state, rows=rows, generation=message.generation)
        elif isinstance(message, PlanChoice):
            known = message.generation == state.generation and (message.plan in state.rows or message.plan == WHOLE)
            missing = not known and message.number > state.heard_number
            if known and message.number > state.heard_number:
                row = state.rows.get(message.plan)
                state = replace(state, plan=message.plan, row=row, scale=message.scale, heard_number=message.number)
        elif isinstance(message, Noted):
            return replace(state, number=max(state.number, message.number)), None
        else:
            raise RefusedError("unknown", f"a {message.kind} message means nothing to a node under a coordinator")
        answer = PlanAck(
            network=self.network.name,
            sender=self.name,
            receiver=COORDINATOR,
            generation=state.generation,
            plan=state.plan,
            number=state.heard_number,
            missing=missing,
        )
        return state, answer

    def tick(self, state: UploadedState, now: float) -> tuple[UploadedState, tuple[AnyMessage, ...]]:
        """What the node sees, for the coordinator, every `report_seconds`."""
        if state.rates is None or now < state.report_due_seconds:
            return state, ()
        number = stamp(state.number, now)
        message = statistics(self.network.name, self.name, COORDINATOR, number, state.rates, state.measured)
        return replace(state, number=number, report_due_seconds=now + self.report_seconds), (message,)

    def status(self, state: UploadedState, now: float) -> dict[str, object]:
        """The plan in use, and whether the coordinator is silent for too long."""
        return {
            "plan": state.plan,
            "generation": state.generation,
            "rows": len(state.rows),
            "scale": state.scale,
            "silent_seconds": silence(state.heard_seconds, now),
            "cut_off": [] if is_fresh(state.heard_seconds, now, self.timeout_seconds) else [COORDINATOR],
        }

    def to_journal(self, state: UploadedState) -> str:
        """The plan in use as one line of JSON."""
        record = _Record.model_validate(state)
        return record.model_copy(update={"network": self.network.name, "node": self.name}).model_dump_json()

    def from_journal(self, text: str, now: float) -> UploadedState | None:
        """The state again; None if the journal is not this node's."""
        try:
            record = _Record.model_validate_json(text)
        except ValidationError:
            return None
        if (record.version, record.network, record.node) != (1, self.network.name, self.name):
            return None
        rows = {} if record.row is None else {record.row.plan: record.row}
        return UploadedState(rows, record.generation, record.plan, record.row, record.scale)

    def planning(self, state: Callable[[], UploadedState]) -> Callable[[], Planner]:
        """One planner, which asks for the state at every plan."""
        planner = UploadedPlanner(self, state)
        return lambda: planner


class UploadedPlanner(AgentPlanner):
    """The coordinator's plan as a planner of the node's part; until the first plan it plans for itself alone."""

    name = "coordinator"

    def __init__(self, machine: CoordinatedNode, state: Callable[[], UploadedState]) -> None:
        super().__init__(machine.network, machine.name, machine.headroom)
        self._state = state
        self._whole_network = machine.network

    @property
    def size(self) -> int:
        """Rows held."""
        return len(self._state().rows)

    def keeps(self, rates: Vector, scale: float = 1.0) -> Vector:
        """Keeps at the part's drop locations: min(F, r)/r at streams and links, the plan's own at branches.

        A node that has become slower takes less than was planned; one that has room does not take more for others.
        """
        state = self._state()
        if state.row is None:
            # No plan yet, or one that drops nothing; an overload of this node itself is still met.
            return self.alone.planner(state.measured).keeps(rates, scale)
        seen = dict(zip(self.network.streams, rates.tolist(), strict=True))
        return np.array(
            [self._keep(state.row, at, seen, state.scale * min(scale, 1.0)) for at in self.network.drop_locations]
        )

    def _keep(self, row: PlanRow, at: str, seen: Mapping[str, float], scale: float) -> float:
        if at not in seen:
            return row.keeps.get(at, 1.0)
        slack = 1.0 if at in self._whole_network.streams else _LINK_SLACK
        most = row.flows.get(at, 0.0) * scale * slack
        return 1.0 if seen[at] <= most else most / seen[at]
