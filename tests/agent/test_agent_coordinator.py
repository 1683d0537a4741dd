"""The coordinator and the nodes under it: plans, ids, uploads, losses, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from floodway.agent.planes import coordinator_state
from floodway.agent.planes.agent import Agent
from floodway.agent.planes.coordinated import CoordinatedNode, UploadedPlanner
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.coordinator_state import WHOLE
from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures, as_measured
from floodway.agent.planes.plane import check_plane, make_coordinator
from floodway.agent.wire.messages import AnyMessage, PlanChoice, PlanUpload, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.errors import InputError, PlanningError
from floodway.job.options.options import JobOptions
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective
from floodway.planning.program import Program
from floodway.planning.solver_cells import Budget
from floodway.planning.windows.window_drop import WindowShape
from tests.oracles.plan_checks import example, hard_rates

RATES = {"s1": 1.0, "s2": 1.0}


class SimulatedCoordinator:
    """A coordinator and its nodes without a network between them; `sent` is what the coordinator said last."""

    def __init__(
        self,
        network: Network,
        planner: str = "exact",
        now: float = 1000.0,
        *,
        lazy: bool = True,
        shapes: Mapping[str, WindowShape] | None = None,
    ) -> None:
        self.network = network
        self.now = now
        self.coordinator = Agent(Coordinator(network, planner, lazy=lazy, shapes=shapes or {}))
        self.nodes = {node: Agent(CoordinatedNode(network, node)) for node in Coordinator(network).nodes}
        self.sent: list[AnyMessage] = []
        self.cut: set[str] = set()

    def planner(self, node: str) -> UploadedPlanner:
        return UploadedPlanner(CoordinatedNode(self.network, node), lambda: self.nodes[node].state)

    def turn(self, rates: Mapping[str, float], measured: Mapping[str, NodeMeasures] | None = None) -> float:
        """All report what reaches them, the coordinator plans and tells; the score that the plans then earn."""
        for _ in range(3):
            self.flow(rates, measured or {})
            for node, machine in self.nodes.items():
                self.deliver(machine.tick(self.now), from_node=node)
            self.sent = list(self.coordinator.tick(self.now))
            self.deliver(tuple(self.sent), from_node=None)
            self.now += 0.6
        return self.flow(rates, measured or {})

    def flow(self, rates: Mapping[str, float], measured: Mapping[str, NodeMeasures]) -> float:
        """Every node observes what reaches it and plans for it; the score."""
        offered, score = dict(rates), 0.0
        order = [self.network.operators[name].node for name in self.network.order]
        for node in sorted(self.nodes, key=lambda name: max(i for i, n in enumerate(order) if n == name)):
            here = {name: offered.get(name, 0.0) for name in node_part(self.network, node).streams}
            self.nodes[node].observe(here, measured.get(node, UNMEASURED), self.now)
            plan = self.planner(node).plan(here)
            offered.update(plan.throughput)
            score += sum(out.weight * plan.throughput.get(name, 0.0) for name, out in self.network.outputs.items())
        return score

    def deliver(self, messages: tuple[AnyMessage, ...], from_node: str | None) -> None:
        """Carry messages there and answers back, as bytes; nodes that are cut off get and send none."""
        for message in messages:
            other = message.receiver if from_node is None else from_node
            if other in self.cut:
                continue
            sender = self.coordinator if from_node is None else self.nodes[from_node]
            receiver = self.nodes[message.receiver] if from_node is None else self.coordinator
            found = decode(encode(message), network=self.network.name, receiver=message.receiver)
            answer = receiver.hear(found, self.now)
            if answer is not None:
                sender.hear(decode(encode(answer), network=self.network.name, receiver=answer.receiver), self.now)


@pytest.mark.parametrize("planner", ["exact", "solver", "solver-w", "fit"])
@pytest.mark.parametrize("lazy", [False, True], ids=["advance", "lazy"])
def test_figure_1_with_every_planner(planner: str, lazy: bool) -> None:
    simulated = SimulatedCoordinator(example("figure1"), planner, lazy=lazy)
    assert simulated.turn(RATES) >= 0.95 * 0.6
    assert simulated.planner("A").plan(RATES).keeps == pytest.approx({"s1": 0.2, "s2": 0.4}, rel=0.1)
    assert simulated.planner("B").plan(simulated.planner("A").plan(RATES).throughput).drops == {}
    assert (simulated.planner("A").size == 1) == lazy and simulated.planner("A").plan(RATES).overloaded


@pytest.mark.parametrize("name", ["diamond", "bandwidth-memory", "figure9-64-32", "two-level-split"])
@pytest.mark.parametrize("lazy", [False, True], ids=["advance", "lazy"])
def test_within_epsilon_whatever_the_topology(name: str, lazy: bool) -> None:
    network = example(name)
    simulated = SimulatedCoordinator(network, lazy=lazy)
    exact = ExactPlanner(Program(network))
    for rates in hard_rates(network, seed=4, count=6):
        assert simulated.turn(rates) >= exact.plan(rates).score * 0.95 * (1 - 1e-6), rates


def test_plans_made_in_advance_are_uploaded_before_they_are_needed_and_then_only_named() -> None:
    network = example("figure1")
    simulated = SimulatedCoordinator(network, lazy=False)
    exact = ExactPlanner(Program(network))
    simulated.turn({"s1": 0.01, "s2": 0.01})
    held = simulated.nodes["A"].state.rows
    assert held.keys() == simulated.coordinator.state.rows.keys() and len(held) > 50
    for number, rates in enumerate(hard_rates(network, seed=9, count=20)):
        bigger = {name: 10 * rate if number % 2 else rate for name, rate in rates.items()}
        told: list[AnyMessage] = []
        for _ in range(3):
            simulated.turn(bigger)
            told += simulated.sent
        assert {type(message) for message in told} <= {PlanChoice}
        assert simulated.flow(bigger, {}) >= exact.plan(bigger).score * 0.95 * (1 - 1e-6)
    assert simulated.nodes["A"].state.rows == held
    simulated.turn(RATES, {"B": NodeMeasures({"b1": 1.0}, {})})
    assert simulated.nodes["A"].state.rows != held
    assert simulated.nodes["A"].state.generation == simulated.coordinator.state.generation


def test_when_a_cost_changes_one_plan_is_uploaded_at_once_and_the_table_when_costs_are_calm() -> None:
    network = example("figure1")
    simulated = SimulatedCoordinator(network, lazy=False)
    simulated.turn(RATES)
    table = len(simulated.nodes["A"].state.rows)
    for cost in (1.0, 1.5, 2.0):
        measured = {"B": NodeMeasures({"b1": cost}, {})}
        score = simulated.turn(RATES, measured)
        assert score >= 0.95 * ExactPlanner(Program(as_measured(network, measured))).plan(RATES).score
        assert len(simulated.nodes["A"].state.rows) == 1 < table
    simulated.now += Coordinator(network).calm_seconds
    simulated.turn(RATES, measured)
    assert len(simulated.nodes["A"].state.rows) > 50
    simulated.turn({"s1": 2.0, "s2": 0.5}, measured)
    assert {type(message) for message in simulated.sent} <= {PlanChoice}


def test_what_cannot_be_prepared_is_planned_when_it_is_needed() -> None:
    figure = example("figure1")
    network = replace(figure, streams={name: replace(one, max_rate=0.5) for name, one in figure.streams.items()})
    simulated = SimulatedCoordinator(network, lazy=False)
    simulated.turn({"s1": 0.4, "s2": 0.4})
    prepared = set(simulated.coordinator.state.rows)
    assert simulated.turn(RATES) >= 0.95 * 0.6  # twice what the file says is the most
    assert set(simulated.coordinator.state.rows) > prepared or simulated.coordinator.state.plan in prepared


UNBOUNDED = """
version: 1
name: unbounded
streams: {s: {}}
nodes: {A: {cpu: 1.0}}
operators:
  free: {node: A, from: s, cost: 0}
  dear: {node: A, from: s, cost: 1}
outputs: {q1: {from: free}, q2: {from: dear, weight: 2}}
"""


def test_the_plans_of_commands_are_made_in_advance_unless_lazy_is_asked_for(tmp_path: Path) -> None:
    def prepared(options: JobOptions) -> object:
        plane = make_coordinator(example("figure1"), Security(), {}, tmp_path, options)
        simulated = SimulatedCoordinator(example("figure1"))
        simulated.coordinator = plane.agent
        simulated.turn(RATES)
        return plane.status()["prepared"]

    assert prepared(JobOptions()) == prepared(JobOptions(plans="advance")) != 0
    assert prepared(JobOptions(plans="lazy")) == 0


@pytest.mark.parametrize(
    ("network", "objective", "words"),
    [
        (parse_network(UNBOUNDED), Objective.THROUGHPUT, "stream 's' has no max_rate"),
        (example("figure1"), Objective.FAIR, "not for the objective 'fair'"),
        (example("figure1"), Objective.THROUGHPUT, "cells of rates have no plan that is good enough: that takes more"),
    ],
    ids=["rates without an end", "another objective", "too many cells"],
)
def test_what_cannot_be_prepared_is_told_and_planned_when_it_is_needed(
    network: Network, objective: Objective, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_state, "BUDGET", Budget(cells=20))
    simulated = SimulatedCoordinator(network)
    simulated.coordinator = Agent(Coordinator(network, objective=objective))
    rates = dict.fromkeys(network.streams, 3.0)
    score = simulated.turn(rates)
    best = make_planner(network, "exact", objective=objective).plan(rates).score
    assert score >= 0.95 * best
    assert words in str(simulated.coordinator.status(simulated.now)["not_prepared"])
    assert not simulated.coordinator.state.rows.keys() <= {WHOLE}


def test_plans_in_advance_that_were_asked_for_are_refused_where_there_can_be_none(tmp_path: Path) -> None:
    network = parse_network(UNBOUNDED)
    check_plane("coordinator", network, JobOptions())
    check_plane("coordinator", network, JobOptions(plans="lazy"))
    with pytest.raises(PlanningError, match=r"'s' has no max_rate.*Give streams\.s\.max_rate"):
        check_plane("coordinator", network, JobOptions(plans="advance"))
    with pytest.raises(PlanningError, match=r"objective 'fair'\. Use --plans lazy"):
        make_coordinator(
            example("figure1"), Security(), {}, tmp_path, JobOptions(plans="advance", objective=Objective.FAIR)
        )


def test_a_coordinator_plans_by_rates_that_were_seen_and_other_control_planes_refuse_them(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("s1,s2\n" + "\n".join(f"{1.0 + i / 500},{0.9 + i / 1000}" for i in range(50)))
    network = example("figure1")
    sizes = []
    for workload in (None, path):
        options = JobOptions(planner="fit", plans="lazy", workload=workload)
        plane = make_coordinator(network, Security(), {}, tmp_path, options)
        simulated = SimulatedCoordinator(network)
        simulated.coordinator = plane.agent
        assert simulated.turn(RATES) >= 0.95 * 0.6 * 0.95
        planner = simulated.coordinator.state.planner
        assert planner is not None
        sizes.append(planner.size)
    assert sizes[1] < sizes[0]
    for kind in ("alone", "dfit"):
        with pytest.raises(InputError, match="--workload: a node also plans for its links"):
            check_plane(kind, network, JobOptions(planner="fit", workload=path))


def test_a_coordinator_that_comes_again_goes_on_with_the_plans_that_nodes_hold() -> None:
    simulated = SimulatedCoordinator(example("figure1"), lazy=False)
    simulated.turn(RATES)
    machine, state = Coordinator(example("figure1")), simulated.coordinator.state
    resumed = machine.from_journal(machine.to_journal(state), simulated.now)
    assert resumed is not None and resumed.rows == state.rows
    simulated.coordinator = Agent(machine, resumed)
    simulated.turn({"s1": 2.0, "s2": 0.5})
    assert simulated.coordinator.state.generation == state.generation
    assert not any(isinstance(message, PlanUpload) for message in simulated.sent)


def test_a_plan_is_uploaded_once_and_then_only_named() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    (plan,) = simulated.coordinator.state.rows
    for noisy in (0.98, 1.003, 0.975):
        simulated.turn({"s1": noisy, "s2": noisy})
        assert simulated.coordinator.state.plan == plan
    simulated.turn({"s1": 2.0, "s2": 0.5})
    assert len(simulated.coordinator.state.rows) == 2
    simulated.now += 10.0
    simulated.flow(RATES, {})
    for node, machine in simulated.nodes.items():
        simulated.deliver(machine.tick(simulated.now), from_node=node)
    back = simulated.coordinator.tick(simulated.now)
    assert {type(message) for message in back} == {PlanChoice} and len(back) == 2
    assert simulated.coordinator.tick(simulated.now + 0.1) == ()


def test_low_rates_drop_nothing_anywhere() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    assert simulated.turn({"s1": 0.1, "s2": 0.1}) == pytest.approx(0.2)
    assert simulated.nodes["A"].state.plan == WHOLE and simulated.coordinator.state.rows == {}


def test_new_costs_make_a_new_generation_and_small_changes_none() -> None:
    network = example("figure1")
    simulated = SimulatedCoordinator(network)
    simulated.turn(RATES)
    before = simulated.coordinator.state.generation
    simulated.turn(RATES, {"B": NodeMeasures({"b1": 3.0 * 1.01}, {})})
    assert simulated.coordinator.state.generation == before
    measured = {"B": NodeMeasures({"b1": 1.0}, {})}
    score = simulated.turn(RATES, measured)
    assert simulated.coordinator.state.generation > before
    assert score >= 0.95 * ExactPlanner(Program(as_measured(network, measured))).plan(RATES).score


def test_a_scale_of_the_capacity_needs_no_other_row() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn({"s1": 4.0, "s2": 4.0}, {"A": replace(UNMEASURED, scale=0.5)})
    keeps = simulated.planner("A").plan({"s1": 4.0, "s2": 4.0}).keeps
    assert keeps == pytest.approx({"s1": 0.2 / 4 / 2, "s2": 0.4 / 4 / 2}, rel=0.05)


def test_a_coordinator_that_dies_leaves_every_node_shedding() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    simulated.cut = {"A", "B"}
    score = simulated.turn(RATES)
    assert score == pytest.approx(0.6, rel=0.05)
    # Rates that rise are cut to what was planned, rates that fall are not cut more than needed.
    assert simulated.turn({"s1": 5.0, "s2": 5.0}) == pytest.approx(score, rel=0.05)
    assert simulated.turn({"s1": 0.1, "s2": 0.1}) == pytest.approx(0.2)
    simulated.now += 60
    assert simulated.nodes["A"].status(simulated.now)["cut_off"] == ["coordinator"]
    assert simulated.coordinator.status(simulated.now)["cut_off"] == ["A", "B"]


def test_another_coordinator_with_a_clock_behind_is_listened_to() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    old = simulated.coordinator.state.generation
    simulated.coordinator = Agent(Coordinator(simulated.network, "fit"))
    simulated.now = 50.0
    for node, machine in simulated.nodes.items():
        simulated.nodes[node] = Agent(machine.machine, replace(machine.state, report_due_seconds=0.0))
    simulated.turn({"s1": 2.0, "s2": 0.3})
    assert simulated.turn({"s1": 2.0, "s2": 0.3}) >= 0.95 * 0.7 / 1.5
    assert simulated.nodes["A"].state.generation == simulated.coordinator.state.generation > old
    assert simulated.coordinator.status(simulated.now)["acknowledged"] == ["A", "B"]


@pytest.mark.parametrize("step", [1.0, 60.0, 3600.0, 86_400.0])
def test_a_node_restarted_with_its_clock_set_back_is_heard(step: float) -> None:
    simulated = SimulatedCoordinator(example("figure1"), now=1_000_000.0)
    simulated.turn(RATES)
    before = simulated.coordinator.state.members["A"].number
    simulated.nodes["A"] = Agent(CoordinatedNode(simulated.network, "A"))
    simulated.now -= step  # everybody's clock, so that only the count of the node that has forgotten it can go back
    simulated.turn({"s1": 2.0, "s2": 0.3})
    member = simulated.coordinator.state.members["A"]
    assert member.number > before and member.rates == {"s1": 2.0, "s2": 0.3}


def test_a_node_that_lost_its_rows_gets_them_again() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    simulated.nodes["A"] = Agent(CoordinatedNode(simulated.network, "A"))
    alone = simulated.planner("A").plan(RATES)
    assert alone.keeps == pytest.approx({"s1": 1.0, "s2": 0.0}, abs=1e-6)
    simulated.now += 5.0
    simulated.turn(RATES)
    assert simulated.planner("A").plan(RATES).keeps == pytest.approx({"s1": 0.2, "s2": 0.4}, rel=0.05)


def test_a_restarted_node_goes_on_with_the_plan_of_its_journal() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    before = simulated.nodes["A"]
    text = before.machine.to_journal(before.state)
    found = before.machine.from_journal(text, simulated.now)
    assert found is not None and found.row == before.state.row and found.plan == before.state.plan
    planner = UploadedPlanner(CoordinatedNode(simulated.network, "A"), lambda: found)
    assert planner.plan(RATES).keeps == simulated.planner("A").plan(RATES).keeps
    for wrong in ("", "{}", text.replace('"A"', '"B"'), text[:-3]):
        assert before.machine.from_journal(wrong, simulated.now) is None


def test_who_may_say_what() -> None:
    simulated = SimulatedCoordinator(example("figure1"))
    simulated.turn(RATES)
    choice = next(
        message for message in simulated.coordinator.tick(simulated.now + 9) if isinstance(message, PlanChoice)
    )
    state = simulated.nodes["A"].state
    with pytest.raises(RefusedError):
        simulated.nodes["A"].hear(choice.model_copy(update={"sender": "B"}), simulated.now)
    with pytest.raises(RefusedError):
        simulated.coordinator.hear(choice, simulated.now)
    assert simulated.nodes["A"].state is state
    old = PlanUpload(network="figure1", sender="coordinator", receiver="A", number=1, generation=1, rows=())
    simulated.nodes["A"].hear(old, simulated.now)
    assert simulated.nodes["A"].state.rows == state.rows and simulated.nodes["A"].state.generation == state.generation
