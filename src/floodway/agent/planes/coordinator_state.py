"""What a coordinator knows, and what of it outlives a restart: its plan table, the plan in force, what nodes hold.

What changes all the time is left out: rates (those that the plan was made for stand in for them until a node reports)
and numbers (they grow with the clock, and answers tell those of a life before). So the file changes when a plan does.
A journal of another network file or planner, or a damaged one, is no reason not to start: all is planned anew, and
the nodes keep their plans until then.

Plans made in advance (`AdvancePlans`) are one for each cell of the Solver's division of the rate space. A cell has the
optimal flows F at its lower corner; a node applies them as min(F, r), which scales a point of the cell down to that
corner. Streams that the cell keeps whole have its upper corner. So all nodes can hold all plans before the first is
needed, and a change of rates costs an id. Long paper, sections 4 and 5.1.

Cells that the budget left with a larger error than asked for have no plan here: the coordinator plans for them when
they are visited, as it does everywhere with `--plans lazy`. So it does where nothing can be prepared: rates without an
end, another objective than throughput. `not_prepared` says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from floodway.agent.planes.dfit.own import NodeMeasures, Scale, as_measured
from floodway.agent.planes.dfit.state import ClusterMember
from floodway.agent.wire.messages import Amount, Name, Number, PlanRow
from floodway.errors import PlanningError
from floodway.network.file import network_to_json
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.plan import Objective, Planner
from floodway.planning.program import Program
from floodway.planning.solver import SolverPlanner
from floodway.planning.solver_cells import Budget, rate_space

Rows = Mapping[str, Mapping[str, PlanRow]]
"""Plans by id, with a row a node."""
WHOLE = "whole"
"""The plan that drops nothing; it needs no row."""


@dataclass(frozen=True, slots=True)
class LastOrder:
    """What one node was told last and whether it said so; `rows` are the plans it is known to hold."""

    plan: Name | None = None
    scale: Scale = 1.0
    generation: Annotated[int, Field(ge=-1)] = -1
    rows: frozenset[Name] = frozenset()
    acked: bool = False
    due_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class CoordinatorState:
    """All that a coordinator knows. `rows` are the plans of this generation, `table` finds those made in advance.

    The table is made at `table_due_seconds`; `not_prepared` is why some rates have no plan there. `cell` holds the
    rates that `plan` was made for.
    """

    members: Mapping[str, ClusterMember]
    told: Mapping[str, LastOrder]
    planner: Planner | None = None
    table: AdvancePlans | None = None
    table_due_seconds: float = 0.0
    not_prepared: str = ""
    planned: Mapping[str, NodeMeasures] = field(default_factory=dict)
    generation: int = 0
    rows: Rows = field(default_factory=dict)
    plan: str | None = None
    cell: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0
    number: int = 0
    resumed: bool = False
    """Whether it goes on from a journal."""


def first_coordinator_state(nodes: Iterable[str]) -> CoordinatorState:
    """Before anything is heard of these nodes."""
    known = tuple(nodes)
    return CoordinatorState(dict.fromkeys(known, ClusterMember()), dict.fromkeys(known, LastOrder()))


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line of the journal; the second is the plan table."""

    made_by: Name
    """A hash of the network and the settings that the plans are of."""

    generation: Number
    plan: Name | None
    cell: Mapping[Name, Amount]
    scale: Scale
    planned: Mapping[Name, NodeMeasures]
    members: Mapping[Name, NodeMeasures]
    told: Mapping[Name, LastOrder]
    version: int = 1


_HEAD = TypeAdapter(_Head)
_ROWS = TypeAdapter(dict[str, dict[Name, dict[Name, PlanRow]]])


class CoordinatorJournal:
    """Writes and reads the journal of one coordinator, which plans for this network with these settings."""

    def __init__(
        self, network: Network, nodes: Sequence[str], settings: list[object], make_planner: Callable[[Network], Planner]
    ) -> None:
        self._network, self._nodes, self._make_planner = network, nodes, make_planner
        self._name = hashlib.sha256(json.dumps([network_to_json(network), *settings]).encode()).hexdigest()
        self._rows: Rows | None = None
        self._rows_text = ""

    def to_text(self, state: CoordinatorState) -> str:
        """The journal's text. The plan table is written out anew only when it is another."""
        if state.rows is not self._rows:
            rows = {plan: dict(nodes) for plan, nodes in state.rows.items()}
            self._rows, self._rows_text = state.rows, _ROWS.dump_json({"rows": rows}).decode()
        head = _Head(
            made_by=self._name,
            generation=state.generation,
            plan=state.plan,
            cell=state.cell,
            scale=state.scale,
            planned=state.planned,
            members={node: member.measured for node, member in state.members.items()},
            told={node: replace(told, due_seconds=0.0) for node, told in state.told.items()},
        )
        return f"{_HEAD.dump_json(head).decode()}\n{self._rows_text}"

    def from_text(self, text: str) -> CoordinatorState | None:
        """The state again, with its planner built from the costs it had; None if it is not this coordinator's."""
        first, _, second = text.strip().partition("\n")
        try:
            head, rows = _HEAD.validate_json(first), _ROWS.validate_json(second)["rows"]
        except (ValidationError, KeyError):
            return None
        state = first_coordinator_state(self._nodes)
        nodes = state.members.keys()
        fits = (
            (head.version, head.made_by) == (1, self._name)
            and head.members.keys() == head.told.keys() == head.planned.keys() == nodes
            and all(found.keys() == nodes for found in rows.values())
            and (head.plan in (None, WHOLE) or head.plan in rows)
        )
        if not fits:
            return None
        return replace(
            state,
            planner=self._make_planner(as_measured(self._network, head.planned)),
            planned=head.planned,
            generation=head.generation,
            rows=rows,
            plan=head.plan,
            cell=head.cell,
            scale=head.scale,
            members={
                node: ClusterMember(found, self._rates(node, head.cell, head.scale))
                for node, found in head.members.items()
            },
            told=head.told,
            resumed=True,
        )

    def _rates(self, node: str, cell: Mapping[str, float], scale: float) -> dict[str, float]:
        """What the node's streams brought, as far as the plan in force tells: the rates it was made for."""
        read = node_part(self._network, node).streams
        return {name: rate * scale for name, rate in cell.items() if name in read}


BUDGET = Budget(lp_calls=4_000, seconds=2.0, cells=4_000)
"""A coordinator that has lost a node's costs must not be silent for long; a node holds 5,000 plans."""


PREPARED = "cell-"
"""What the ids of these plans begin with."""


class AdvancePlans:
    """Plans by id for all rates, within `epsilon` of the best."""

    def __init__(self, program: Program, epsilon: float) -> None:
        self._program = program
        # Mixed plans of several corners would need the point's place in its cell: a row is one plan.
        # Rates move within a cell, and drops follow late: half of the error is left for that where the budget allows.
        self._solver = SolverPlanner(program, epsilon / 2, mix=False, adaptive=True, budget=BUDGET)
        errors = {cell.number: cell.error for cell in self._solver.corner_plans()}
        self._good = {number for number, error in errors.items() if error <= epsilon}
        self._missing = len(errors) - len(self._good)

    @property
    def gaps(self) -> str:
        """Why not all cells have a plan; empty if all have one."""
        if not self._missing:
            return ""
        return (
            f"{self._missing} of {self._missing + len(self._good)} cells of rates have no plan that is good enough: "
            f"that takes more than {BUDGET.cells} plans, or {BUDGET.seconds:g} s"
        )

    def find(self, rates: Mapping[str, float]) -> str | None:
        """The plan for these rates (tuples/s, at nominal capacity); None where none was prepared."""
        number = self._solver.cell_at(np.array([rates[name] for name in self._program.streams]))
        return _name(number) if number in self._good else None

    def plans(self) -> Iterator[tuple[str, dict[str, float], dict[str, float]]]:
        """(id, rates that the plan is for, keeps at these rates) of every plan."""
        streams, locations = self._program.streams, self._program.network.drop_locations
        for cell in self._solver.corner_plans():
            if cell.number in self._good:
                keeps = self._program.keeps(cell.flows, cell.rates)
                yield (
                    _name(cell.number),
                    dict(zip(streams, cell.rates.tolist(), strict=True)),
                    dict(zip(locations, keeps.tolist(), strict=True)),
                )


def check_advance(program: Program, objective: Objective) -> None:
    """Refuse to plan in advance for another objective, or for rates that have no end."""
    if objective is not Objective.THROUGHPUT:
        raise PlanningError(
            f"plans made in advance are for weighted throughput, not for the objective {objective.value!r}",
            hint="Use --plans lazy",
        )
    rate_space(program)


def _name(number: int | None) -> str:
    return f"{PREPARED}{number}"
