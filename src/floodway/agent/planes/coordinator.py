"""The coordinator: collects statistics, plans with any planner, uploads plan tables, then sends plan ids.

Plans are made in advance, for all cells of a division of the rate space (`coordinator_state.py`), and all are uploaded
to every node; after that a plan is its id and a scale. A plan is the flows that it lets in at every stream and the
keeps at every branch; a node applies it as min(F, r).

When costs have changed, the plan for the present rates is made and uploaded at once, and the table when costs have been
calm for `calm_seconds`: a table is megabytes, and costs that move would make it void before it is used.

Where nothing was prepared, and everywhere if `lazy`, a plan is made when it is first needed: the status says why. Rates
are rounded up to cells that grow by ε/2, and the plan of a cell stays in force while r <= r' <= (1+ε)·r for the
rates r' it was made for, so that noise does not change plans. Why that is within ε of the planner's own answer: the
optimum of r' is at least that of r, and min(F, r) >= F/(1+ε) at every stream.

Pure: (state, event) -> (state, messages). Every number it sends grows with its clock, so that a coordinator that was
restarted, or is another one, is listened to. Long paper, section 5 (Solver) and 8 (run-time).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from floodway.agent.planes.agent import is_fresh
from floodway.agent.planes.coordinator_state import (
    PREPARED,
    WHOLE,
    AdvancePlans,
    CoordinatorJournal,
    CoordinatorState,
    LastOrder,
    Rows,
    check_advance,
    first_coordinator_state,
)
from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures, as_measured, has_moved
from floodway.agent.planes.dfit.state import ClusterMember, measures_of, stamp
from floodway.agent.wire.messages import (
    COORDINATOR,
    AnyMessage,
    NodeStatistics,
    Noted,
    PlanAck,
    PlanChoice,
    PlanRow,
    PlanUpload,
)
from floodway.agent.wire.refusals import RefusedError
from floodway.errors import PlanningError
from floodway.network.flow import flows
from floodway.network.model import Network, Operator
from floodway.network.part import node_part, part_keeps
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective, Planner
from floodway.planning.windows.window_choice import WindowChooser
from floodway.planning.windows.window_drop import WindowShape

_MOST_ROWS = 1_000
_ROWS_PER_UPLOAD = 500
_SMALLEST = 1e-3
"""Rates below this part of what a stream can bring alone share one cell."""


@dataclass(frozen=True)
class Coordinator:
    """The machine of a coordinator, and how it plans. Times in seconds; `tolerance` as in `dfit/state.Settings`.

    `shapes` are the windows of drops that go by windows. Where these overlap, plans are chosen for the windows that
    they keep (`planning/windows/window_choice.py`), each when its rates first ask for it.
    """

    shares_target: ClassVar[bool] = True
    network: Network
    planner: str = "exact"
    epsilon: float = 0.05
    headroom: float = 1.0
    objective: Objective = Objective.THROUGHPUT
    workload: Path | None = None
    lazy: bool = False
    shapes: Mapping[str, WindowShape] = field(default_factory=dict)
    tolerance: float = 0.02
    calm_seconds: float = 10.0
    beat_seconds: float = 2.0
    retry_seconds: float = 1.0
    timeout_seconds: float = 10.0

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that run something."""
        return tuple(dict.fromkeys(op.node for op in self.network.operators.values()))

    @cached_property
    def operators(self) -> dict[str, tuple[Operator, ...]]:
        """The operators of every node."""
        every = self.network.operators.values()
        return {node: tuple(op for op in every if op.node == node) for node in self.nodes}

    @cached_property
    def journal(self) -> CoordinatorJournal:
        """Writes and reads what a restart needs."""
        settings = [self.planner, self.epsilon, self.headroom, self.objective.value, str(self.workload), self.lazy]
        settings += [repr(sorted(self.shapes.items(), key=str))] if self.shapes else []
        return CoordinatorJournal(self.network, self.nodes, settings, self.make_planner)

    @cached_property
    def chooser(self) -> WindowChooser:
        """Chooses plans for the windows that they keep."""
        return WindowChooser(self.network, self.shapes if self.objective is Objective.THROUGHPUT else {})

    def make_planner(self, network: Network) -> Planner:
        """A planner for the network as it was measured."""
        return make_planner(
            network,
            self.planner,
            objective=self.objective,
            epsilon=self.epsilon,
            headroom=self.headroom,
            workload=self.workload,
        )

    def make_table(self, planner: Planner) -> tuple[AdvancePlans | None, str]:
        """Its plans in advance, and why some or all of them have to be made when they are needed."""
        if self.chooser.chooses:
            return None, "drops by windows that overlap are chosen for the rates that there are"
        try:
            check_advance(planner.program, self.objective)
        except PlanningError as error:
            return None, error.message
        table = AdvancePlans(planner.program, self.epsilon)
        return table, table.gaps

    @property
    def name(self) -> str:
        """A coordinator is no node."""
        return COORDINATOR

    def first(self) -> CoordinatorState:
        """Before anything is heard."""
        return first_coordinator_state(self.nodes)

    def observe(
        self, state: CoordinatorState, rates: Mapping[str, float], measured: NodeMeasures, now: float
    ) -> CoordinatorState:
        """It runs nothing that could be measured."""
        return state

    def hear(
        self, state: CoordinatorState, message: AnyMessage, now: float
    ) -> tuple[CoordinatorState, AnyMessage | None]:
        """Take a node's statistics, or its answer."""
        if message.sender not in state.members:
            raise RefusedError("unknown", f"{message.sender!r} is no node of {self.network.name!r}")
        if isinstance(message, NodeStatistics):
            taken = max(message.number, state.members[message.sender].number)
            answer = Noted(network=self.network.name, sender=COORDINATOR, receiver=message.sender, number=taken)
            if message.number <= state.members[message.sender].number:
                return state, answer
            member = ClusterMember(measures_of(message), message.rates, message.number, now)
            return replace(state, members={**state.members, message.sender: member}), answer
        if isinstance(message, PlanAck):
            return _acked(state, message, now), None
        raise RefusedError("unknown", f"a {message.kind} message means nothing to a coordinator")

    def tick(self, state: CoordinatorState, now: float) -> tuple[CoordinatorState, tuple[AnyMessage, ...]]:
        """Plan for what was heard, and tell who has not been told."""
        state = _planned(self, state, now)
        plan = state.plan
        if plan is None:
            return state, ()
        send: list[AnyMessage] = []
        told = dict(state.told)
        for node in self.nodes:
            if state.members[node].heard_seconds is None:
                continue  # it has not said that it is there
            before = told[node]
            news = (before.plan, before.scale, before.generation) != (plan, state.scale, state.generation)
            if not news and now < before.due_seconds:
                continue
            messages, number = _telling(self, state, plan, node, before, now)
            send += messages
            state = replace(state, number=number)
            kept = before.rows if before.generation == state.generation else frozenset()
            held = frozenset((plan, *_prepared(state.rows)))
            acked = before.acked and not news
            due = now + (self.beat_seconds if acked else self.retry_seconds)
            told[node] = LastOrder(plan, state.scale, state.generation, kept | held, acked, due)
        return replace(state, told=told), tuple(send)

    def status(self, state: CoordinatorState, now: float) -> dict[str, object]:
        """The plan in force and which nodes have it."""
        silent = [n for n, m in state.members.items() if not is_fresh(m.heard_seconds, now, self.timeout_seconds)]
        return {
            "planner": self.planner,
            "resumed": state.resumed,
            "plan": state.plan,
            "generation": state.generation,
            "rows": len(state.rows),
            "prepared": len(_prepared(state.rows)),
            "not_prepared": state.not_prepared,
            "scale": state.scale,
            "acknowledged": [node for node, told in state.told.items() if told.acked],
            "cut_off": silent,
        }

    def to_journal(self, state: CoordinatorState) -> str:
        """The plan table, the plan in force, what every node holds."""
        return self.journal.to_text(state)

    def from_journal(self, text: str, now: float) -> CoordinatorState | None:
        """The state again; None if the journal is not this coordinator's."""
        return self.journal.from_text(text)


def _acked(state: CoordinatorState, ack: PlanAck, now: float) -> CoordinatorState:
    told = state.told[ack.sender]
    if ack.missing or ack.generation != told.generation:
        told = replace(told, rows=frozenset(), acked=False, due_seconds=now)
    elif ack.plan == told.plan:
        told = replace(told, acked=True)
    state = replace(state, told={**state.told, ack.sender: told}, number=max(state.number, ack.number))
    if ack.generation is not None and ack.generation > state.generation:
        # From a coordinator before this one, whose clock was ahead: only a later generation will be taken.
        state = replace(state, generation=ack.generation + 1, rows=_prepared(state.rows))
    return state


def _telling(
    machine: Coordinator, state: CoordinatorState, plan: str, node: str, told: LastOrder, now: float
) -> tuple[list[AnyMessage], int]:
    network = machine.network.name
    number = state.number
    messages: list[AnyMessage] = []
    held = told.rows if told.generation == state.generation else frozenset()
    wanted = sorted({plan, *_prepared(state.rows)} - held)
    rows = [state.rows[name][node] for name in wanted if name != WHOLE]
    for first in range(0, len(rows) if rows else min(len(wanted), 1), _ROWS_PER_UPLOAD):
        number = stamp(number, now)
        messages.append(
            PlanUpload(
                network=network,
                sender=COORDINATOR,
                receiver=node,
                number=number,
                generation=state.generation,
                rows=tuple(rows[first : first + _ROWS_PER_UPLOAD]),
            )
        )
    number = stamp(number, now)
    messages.append(
        PlanChoice(
            network=network,
            sender=COORDINATOR,
            receiver=node,
            number=number,
            generation=state.generation,
            plan=plan,
            scale=state.scale,
        )
    )
    return messages, number


def _planned(machine: Coordinator, state: CoordinatorState, now: float) -> CoordinatorState:
    if all(member.heard_seconds is None for member in state.members.values()):
        return state
    measured = {node: member.measured for node, member in state.members.items()}
    planner = state.planner
    plain = {node: replace(found, scale=1.0) for node, found in measured.items()}
    moved = any(
        has_moved(machine.operators[node], state.planned.get(node, UNMEASURED), found, machine.tolerance)
        for node, found in plain.items()
    )
    if planner is None or moved:
        due = now if planner is None else now + machine.calm_seconds
        planner = machine.make_planner(as_measured(machine.network, plain))
        generation = stamp(state.generation, now)
        state = replace(
            state, planner=planner, planned=plain, generation=generation, rows={}, table=None, table_due_seconds=due
        )
    prepared = _prepared(state.rows)
    if state.table is None and not machine.lazy and now >= state.table_due_seconds:
        table, gaps = machine.make_table(planner)
        before, prepared = prepared, _table_rows(machine, planner, table)
        state = replace(state, table=table, not_prepared=gaps, table_due_seconds=math.inf)
        if before.keys() - prepared.keys():  # of a life before, which divided the rates otherwise
            state = replace(state, generation=stamp(state.generation, now), rows=prepared)
        else:
            state = replace(state, rows={**state.rows, **prepared})
    if len(state.rows) - len(prepared) >= _MOST_ROWS:
        state = replace(state, generation=stamp(state.generation, now), rows=prepared)
    scale = min(found.scale for found in measured.values())
    rates = {
        name: max((member.rates.get(name, 0.0) for member in state.members.values()), default=0.0)
        for name in machine.network.streams
    }
    return _cell(machine, replace(state, scale=scale), planner, {name: rate / scale for name, rate in rates.items()})


def _cell(
    machine: Coordinator, state: CoordinatorState, planner: Planner, rates: Mapping[str, float]
) -> CoordinatorState:
    """The state with the plan for these rates (at nominal capacity) in force."""
    program = planner.program
    if not program.overloaded(np.array([rates[name] for name in program.streams])):
        return replace(state, plan=WHOLE, cell={})
    prepared = None if state.table is None else state.table.find(rates)
    if prepared is not None:
        return replace(state, plan=prepared, cell=dict(rates))
    least = {
        name: _SMALLEST * (alone if math.isfinite(alone) else 1.0)
        for name, alone in zip(program.streams, program.max_feasible_rates.tolist(), strict=True)
    }
    rates = {name: max(rate, least[name]) for name, rate in rates.items()}
    near = state.cell and all(
        rates[name] <= top <= (1 + machine.epsilon) * rates[name] for name, top in state.cell.items()
    )
    if near and state.plan in state.rows.keys() - _prepared(state.rows).keys():
        return state
    step = math.log1p(machine.epsilon / 2)
    steps = {name: math.ceil(math.log(rates[name] / least[name]) / step) for name in program.streams}
    cell = {name: max(least[name] * math.exp(step * steps[name]), rates[name]) for name in program.streams}
    plan = hashlib.sha256(repr(sorted(steps.items())).encode()).hexdigest()[:16]
    rows = state.rows if plan in state.rows else {**state.rows, plan: plan_rows(machine, planner, plan, cell)}
    return replace(state, plan=plan, cell=cell, rows=rows)


def _prepared(rows: Rows) -> Rows:
    """The plans that were made in advance."""
    return {plan: nodes for plan, nodes in rows.items() if plan.startswith(PREPARED)}


def _table_rows(machine: Coordinator, planner: Planner, table: AdvancePlans | None) -> Rows:
    plans = () if table is None else table.plans()
    return {plan: node_rows(machine, planner.network, plan, rates, keeps) for plan, rates, keeps in plans}


def plan_rows(machine: Coordinator, planner: Planner, plan: str, rates: Mapping[str, float]) -> dict[str, PlanRow]:
    """Every node's row of the plan for these rates."""
    if not machine.chooser.chooses:
        return node_rows(machine, planner.network, plan, rates, planner.plan(rates).keeps)
    # The same stream is left out in all cells, where that costs little: rates that move must not change windows.
    chooser = replace(machine.chooser, network=planner.network, capacity=machine.headroom)
    most = chooser.choose(planner.plan, dict.fromkeys(rates, max(rates.values())))
    return node_rows(machine, planner.network, plan, rates, chooser.choose(planner.plan, rates, most).plan.keeps)


def node_rows(
    machine: Coordinator, network: Network, plan: str, rates: Mapping[str, float], keeps: Mapping[str, float]
) -> dict[str, PlanRow]:
    """Every node's row of a plan: these keeps at these rates."""
    carried = {str(arc): flow for arc, flow in flows(network, rates, keeps).arc.items()}
    found = {}
    for node in machine.nodes:
        part = node_part(network, node)
        here = part_keeps(network, part, keeps)
        let_in = {at: here[at] * rates[at] if at in network.streams else carried[at] for at in part.streams}
        branches = {at: keep for at, keep in here.items() if at not in part.streams}
        found[node] = PlanRow(plan=plan, flows=let_in, keeps=branches)
    return found
