"""What a coordinator needs to go on after a restart: its plan table, the plan in force, what every node holds.

What changes all the time is left out: rates (those that the plan was made for stand in for them until a node reports)
and numbers (they grow with the clock, and answers tell those of a life before). So the file changes when a plan does.
A journal of another network file or planner, or a damaged one, is no reason not to start: all is planned anew, and
the nodes keep their plans until then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from floodway.agent.planes.coordinator import WHOLE, CoordinatorState, Office, Told, first_coordinator_state
from floodway.agent.planes.dfit.own import Measured, as_measured
from floodway.agent.planes.dfit.state import Member
from floodway.agent.wire.messages import Amount, Amounts, Name, Number, PlanRow
from floodway.network.dump import network_to_json
from floodway.network.part import node_part
from floodway.planning.factory import make_planner

_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _MeasuredRecord(_Record):
    costs: Amounts
    selectivities: Amounts
    scale: _Scale

    @classmethod
    def of(cls, measured: Measured) -> Self:
        return cls(costs=dict(measured.costs), selectivities=dict(measured.selectivities), scale=measured.scale)

    def back(self) -> Measured:
        return Measured(self.costs, self.selectivities, self.scale)


class _ToldRecord(_Record):
    plan: Name | None
    scale: _Scale
    generation: Annotated[int, Field(ge=-1)]
    rows: frozenset[Name]
    acked: bool


class _Head(_Record):
    version: int = 1
    office: Name
    generation: Number
    plan: Name | None
    cell: dict[Name, Amount]
    scale: _Scale
    planned: dict[Name, _MeasuredRecord]
    members: dict[Name, _MeasuredRecord]
    told: dict[Name, _ToldRecord]


class _Rows(_Record):
    rows: dict[Name, dict[Name, PlanRow]]


class CoordinatorJournal:
    """Writes and reads the journal of one office: a line for what is in force, a line for the plan table."""

    def __init__(self, office: Office) -> None:
        self._office = office
        settings = (network_to_json(office.network), office.planner, office.objective, office.epsilon, office.headroom)
        self._name = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
        self._rows: Mapping[str, Mapping[str, PlanRow]] | None = None
        self._rows_text = ""

    def to_text(self, state: CoordinatorState) -> str:
        """The journal's text. The plan table is written out anew only when it is another."""
        if state.rows is not self._rows:
            rows = {plan: dict(nodes) for plan, nodes in state.rows.items()}
            self._rows, self._rows_text = state.rows, _Rows(rows=rows).model_dump_json()
        head = _Head(
            office=self._name,
            generation=state.generation,
            plan=state.plan,
            cell=dict(state.cell),
            scale=state.scale,
            planned={node: _MeasuredRecord.of(found) for node, found in state.planned.items()},
            members={node: _MeasuredRecord.of(member.measured) for node, member in state.members.items()},
            told={
                node: _ToldRecord(
                    plan=told.plan,
                    scale=told.scale,
                    generation=told.generation,
                    rows=told.rows,
                    acked=told.acked,
                )
                for node, told in state.told.items()
            },
        )
        return f"{head.model_dump_json()}\n{self._rows_text}"

    def from_text(self, text: str) -> CoordinatorState | None:
        """The state again, with its planner built from the costs it had; None if the journal is not this office's."""
        first, _, second = text.strip().partition("\n")
        try:
            head, rows = _Head.model_validate_json(first), _Rows.model_validate_json(second).rows
        except ValidationError:
            return None
        state = first_coordinator_state(self._office)
        nodes = state.members.keys()
        fits = (
            (head.version, head.office) == (1, self._name)
            and head.members.keys() == head.told.keys() == head.planned.keys() == nodes
            and all(found.keys() == nodes for found in rows.values())
            and (head.plan in (None, WHOLE) or head.plan in rows)
        )
        if not fits:
            return None
        planned = {node: found.back() for node, found in head.planned.items()}
        network = as_measured(self._office.network, planned)
        office = self._office
        return replace(
            state,
            planner=make_planner(network, office.planner, epsilon=office.epsilon, headroom=office.headroom),
            planned=planned,
            generation=head.generation,
            rows=rows,
            plan=head.plan,
            cell=head.cell,
            scale=head.scale,
            members={
                node: Member(found.back(), self._rates(node, head.cell, head.scale))
                for node, found in head.members.items()
            },
            told={
                node: Told(found.plan, found.scale, found.generation, found.rows, found.acked)
                for node, found in head.told.items()
            },
        )

    def _rates(self, node: str, cell: Mapping[str, float], scale: float) -> dict[str, float]:
        """What the node's streams brought, as far as the plan in force tells: the rates it was made for."""
        read = node_part(self._office.network, node).streams
        return {name: rate * scale for name, rate in cell.items() if name in read}
