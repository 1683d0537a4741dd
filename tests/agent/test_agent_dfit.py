"""D-FIT agents: one step at a time, and together, on a good network and on a bad one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.dfit.agent import DFit, OwnTablePlanner
from floodway.agent.planes.dfit.machine import first_state, hear, observe, tick
from floodway.agent.planes.dfit.own import UNMEASURED, NodeMeasures, as_measured
from floodway.agent.planes.dfit.simulation import SimulatedAgents, Wire
from floodway.agent.planes.dfit.state import DFitSettings, DFitState, Role
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.wire.messages import AnyMessage, NodeStatistics, TableAck, TablePush
from floodway.agent.wire.refusals import RefusedError
from floodway.errors import InputError
from floodway.network.model import Link, Network
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.fit.wire import encode_table
from floodway.planning.program import Program
from tests.oracles.plan_checks import example, hard_rates
from tests.planning.test_planning_fit_nodes import tree

FIGURE_1 = ClusterTopology(example("figure1"))
A, B = Role(FIGURE_1, "A"), Role(FIGURE_1, "B")
RATES = {"s1": 1.0, "s2": 1.0}


class Heard(NamedTuple):
    now: float
    message: AnyMessage


class Observed(NamedTuple):
    now: float
    rates: Mapping[str, float]
    measured: NodeMeasures


class Ticked(NamedTuple):
    now: float


class Step(NamedTuple):
    state: DFitState
    answer: AnyMessage | None = None
    send: tuple[AnyMessage, ...] = ()


def step(role: Role, state: DFitState, event: Heard | Observed | Ticked) -> Step:
    if isinstance(event, Heard):
        return Step(*hear(role, state, event.message, event.now))
    if isinstance(event, Observed):
        return Step(observe(role, state, role.node, event.now, event.rates, event.measured))
    after, send = tick(role, state, event.now)
    return Step(after, send=send)


def pushes(messages: tuple[AnyMessage, ...]) -> list[TablePush]:
    return [message for message in messages if isinstance(message, TablePush)]


def push_of(role: Role, state: DFitState, now: float) -> tuple[DFitState, TablePush]:
    done = step(role, state, Ticked(now))
    (message,) = pushes(done.send)
    return done.state, message


def connected(now: float = 100.0) -> tuple[DFitState, DFitState]:
    """A and B after B's first table was taken and acknowledged."""
    below, push = push_of(B, first_state(B), now)
    taken = step(A, first_state(A), Heard(now, push))
    assert isinstance(taken.answer, TableAck)
    return taken.state, step(B, below, Heard(now, taken.answer)).state


def keeps(role: Role, state: DFitState, rates: Mapping[str, float], scale: float = 1.0) -> Mapping[str, float]:
    return OwnTablePlanner(role, lambda: state).plan(rates, scale).keeps


class TestAgent:
    def test_before_anything_is_heard_children_are_as_the_file_says(self) -> None:
        planner = OwnTablePlanner(A, lambda: first_state(A))
        plan = planner.plan(RATES)
        assert plan.score == pytest.approx(0.6, rel=0.05) and plan.overloaded
        assert plan.keeps["s1"] == pytest.approx(0.2, rel=0.05) and planner.size > 0
        assert planner.network.name == "figure1: A"

    def test_nothing_is_dropped_while_nothing_is_short_here_and_below(self) -> None:
        state = first_state(A)
        assert set(keeps(A, state, {"s1": 0.1, "s2": 0.3}).values()) == {1.0}
        # B's b1 takes 3 CPU-seconds a tuple: 0.34 tuples/s are too many for B, though not for A.
        plan = OwnTablePlanner(A, lambda: state).plan({"s1": 0.36, "s2": 0.0})
        assert plan.keeps["s1"] == pytest.approx(1 / 3 / 0.36, rel=1e-3) and plan.overloaded

    def test_a_capacity_scale_applies_to_this_node_alone(self) -> None:
        state = first_state(A)
        found = keeps(A, state, {"s1": 0.0, "s2": 1.0}, 0.5)
        assert found["s2"] == pytest.approx(0.25, rel=1e-3)
        assert keeps(A, state, {"s1": 1.0, "s2": 0.0}, 10.0)["s1"] == pytest.approx(1 / 3, rel=1e-3)

    def test_the_bandwidth_of_a_link_is_planned_for_by_the_node_above_it(self) -> None:
        slow = replace(example("figure1"), links=(Link("A", "B", 30.0),))
        plan = OwnTablePlanner(
            Role(ClusterTopology(slow), "A"), lambda: first_state(Role(ClusterTopology(slow), "A"))
        ).plan(RATES)
        # 100 bytes a tuple make 0.3 tuples/s in all, where A and B themselves could do with 0.6.
        assert sum(plan.throughput.values()) == pytest.approx(0.3, rel=0.05)

    def test_a_table_is_pushed_once_and_again_only_when_it_changed(self) -> None:
        _, below = connected()
        assert pushes(step(B, below, Ticked(100.5)).send) == []
        same = step(B, below, Observed(100.5, {}, NodeMeasures({"b1": 3.0 * 1.01}, {}))).state
        (beat,) = pushes(step(B, replace(same, beat_due_seconds=0.0), Ticked(100.6)).send)
        assert beat.form == "beat"
        moved = step(B, below, Observed(100.5, {}, NodeMeasures({"b1": 4.0}, {}))).state
        moved, push = push_of(B, moved, 100.6)
        assert push.form in ("full", "delta") and below.pushed is not None and push.version > below.pushed.version

    def test_a_change_of_few_rows_travels_as_a_delta_and_gives_the_same_table(self) -> None:
        above, below = connected()
        assert below.own is not None and below.acked is not None
        scores = below.own.table.scores.copy()
        scores[5:9] *= 0.9
        table = replace(below.own.table, scores=scores)
        below, push = push_of(B, replace(below, own=replace(below.own, table=table)), 101.0)
        assert push.form == "delta" and push.rows == 4 and push.base == above.children[0].version
        assert len(push.table) < len(encode_table(table))
        after = step(A, above, Heard(101.0, push)).state
        assert np.allclose(after.children[0].table.scores, scores, rtol=1e-3, atol=1e-6) and after.stale

    def test_a_gap_is_noticed_and_the_whole_table_sent(self) -> None:
        _, below = connected()
        assert below.own is not None
        table = replace(below.own.table, scores=np.maximum(below.own.table.scores, 0.01))
        below, delta = push_of(B, replace(below, own=replace(below.own, table=table)), 101.0)
        fresh = step(A, first_state(A), Heard(101.0, delta))  # a parent that has lost everything
        assert isinstance(fresh.answer, TableAck) and fresh.answer.held is None and not fresh.state.stale
        below, again = push_of(B, step(B, below, Heard(101.0, fresh.answer)).state, 101.1)
        assert again.form == "full" and again.version > delta.version
        healed = step(A, fresh.state, Heard(101.2, again)).state
        assert np.allclose(healed.children[0].table.scores, table.scores, atol=1e-6)

    def test_what_is_not_answered_is_repeated_unchanged(self) -> None:
        below, push = push_of(B, first_state(B), 100.0)
        assert pushes(step(B, below, Ticked(100.9)).send) == []
        _, again = push_of(B, below, 101.1)
        assert again == push

    def test_old_and_doubled_pushes_change_nothing_but_are_answered(self) -> None:
        above, below = connected()
        moved = step(B, below, Observed(101.0, {}, NodeMeasures({"b1": 4.0}, {}))).state
        moved, newer = push_of(B, moved, 101.1)
        _, older = push_of(B, first_state(B), 100.0)
        taken = step(A, above, Heard(101.2, newer)).state
        for late in (older, newer):
            done = step(A, taken, Heard(101.3, late))
            assert isinstance(done.answer, TableAck) and done.answer.held == newer.version
            assert done.state.children[0].table is taken.children[0].table

    def test_an_agent_that_has_forgotten_its_versions_is_heard_again(self) -> None:
        above, _ = connected(now=1_000_000.0)
        below, push = push_of(B, first_state(B), 5.0)  # its clock is far behind
        refused = step(A, above, Heard(1_000_001.0, push))
        assert refused.answer is not None and refused.state.children[0].version == 1_000_000_000_000 > push.version
        _, again = push_of(B, step(B, below, Heard(5.1, refused.answer)).state, 5.2)
        assert step(A, refused.state, Heard(1_000_002.0, again)).state.children[0].version == again.version

    def test_a_silent_child_keeps_its_last_table_and_is_then_planned_as_the_file_says(self) -> None:
        role = DFit(FIGURE_1, "A", DFitSettings(child_timeout_seconds=10, forget_after_seconds=60))
        moved = step(B, first_state(B), Observed(0.0, {}, NodeMeasures({"b1": 30.0}, {}))).state
        _, push = push_of(B, moved, 100.0)
        machine = Agent(role)
        machine.hear(push, 100.0)
        for now, planned_as, keep in ((105.0, "last table", 1 / 30), (130.0, "last table, gone", 1 / 30)):
            machine.tick(now)
            status = machine.status(now)
            assert f"'planned_as': '{planned_as}'" in str(status["children"])
            assert status["cut_off"] == ([] if now < 110 else ["B"])
            found = keeps(role, machine.state, {"s1": 1.0, "s2": 0.0})
            assert found["s1"] == pytest.approx(keep, rel=0.05)
        machine.tick(161.0)
        assert "'planned_as': 'configured'" in str(machine.status(161.0)["children"])
        assert keeps(role, machine.state, {"s1": 1.0, "s2": 0.0})["s1"] == pytest.approx(1 / 3, rel=0.05)

    def test_who_may_say_what(self) -> None:
        above, below = connected()
        _, push = push_of(B, first_state(B), 100.0)
        who = {"network": "figure1", "sender": "B", "receiver": "A"}
        for role, state, message in (
            (B, below, push.model_copy(update={"sender": "A", "receiver": "B"})),
            (A, above, TableAck.model_validate({**who, "held": 1})),
            (A, above, NodeStatistics.model_validate({**who, "number": 1, "rates": {}})),
        ):
            with pytest.raises(RefusedError) as error:
                step(role, state, Heard(101.0, message))
            assert error.value.reason == "unknown"
        for wrong in ({"table": b"FT"}, {"useful": (1.0,)}, {"table": push.table[:-9]}, {"table": b""}):
            with pytest.raises(RefusedError) as error:
                step(A, above, Heard(101.0, push.model_copy(update={**wrong, "version": push.version + 1})))
            assert error.value.reason == "malformed"

    def test_a_journal_brings_back_tables_and_a_wrong_one_is_left(self) -> None:
        above, _ = connected()
        above = step(A, above, Observed(100.0, RATES, NodeMeasures({"a1": 1.2}, {}))).state
        text = DFit(FIGURE_1, "A").to_journal(above)
        found = DFit(FIGURE_1, "A").from_journal(text, 200.0)
        assert found is not None and found.children[0].version == above.children[0].version
        assert found.children[0].heard_seconds == 200.0 and found.members["A"].measured.costs == {"a1": 1.2}
        assert np.array_equal(found.children[0].table.scores, above.children[0].table.scores)
        for wrong in ("", "{}", text[:-5], text.replace('"A"', '"B"', 1), text.replace("RlQ", "AAA"), "\0"):
            assert DFit(FIGURE_1, "A").from_journal(wrong, 200.0) is None
        assert DFit(FIGURE_1, "B").from_journal(text, 200.0) is None

    def test_an_unknown_node(self) -> None:
        with pytest.raises(InputError, match="no operator runs"):
            first_state(Role(FIGURE_1, "Z"))


def settled(network: Network, measured: Mapping[str, NodeMeasures], wire: Wire, seed: int) -> SimulatedAgents:
    sim = SimulatedAgents(ClusterTopology(network), np.random.default_rng(seed), wire=wire)
    for node, found in measured.items():
        sim.measure(node, found)
    sim.settle(5.0, 60.0)
    return sim


class TestTogether:
    def test_agents_come_to_the_tables_that_one_process_would_build(self) -> None:
        network = tree(15, 2, seed=4)
        measured = {"n8": NodeMeasures({"o8.0": 1.9}, {"o8.1": 0.7}), "n1": NodeMeasures({"o1.1": 0.3}, {})}
        sim = settled(network, measured, Wire(), 1)
        central = DFitPlanner(Program(as_measured(network, measured)), 0.05)
        for i, cluster in enumerate(central.clusters):
            own = sim.agents[cluster.nodes[0]].state.own
            assert own is not None and np.array_equal(own.table.rates, central.tables[i].rates)
            assert np.allclose(own.table.scores, central.tables[i].scores, rtol=1e-3, atol=1e-6)

    def test_only_the_changed_node_and_those_above_send_again(self) -> None:
        sim = settled(tree(15, 2, seed=4), {}, Wire(), 1)
        before = {node: machine.state.number for node, machine in sim.agents.items()}
        sim.measure("n8", NodeMeasures({"o8.0": 1.9}, {}))
        sim.settle(3.0, 60.0)
        sent = {node for node, machine in sim.agents.items() if machine.state.number > before[node]}
        assert "n8" in sent and sent <= {"n8", "n3", "n1", "n0", "n7", "n4", "n9", "n10"}

    @pytest.mark.parametrize("name", ["figure1", "diamond", "figure9-64-32"])
    def test_within_epsilon_of_the_optimum(self, name: str) -> None:
        network = example(name)
        sim = settled(network, {}, Wire(), 2)
        exact = ExactPlanner(Program(network))
        for rates in hard_rates(network, seed=1, count=8):
            told_all(sim, rates)
            assert sim.score(rates) >= exact.plan(rates).score * 0.95 * (1 - 1e-6), rates


def told_all(sim: SimulatedAgents, rates: Mapping[str, float]) -> None:
    """Members of a cluster see what reaches them and say so, until all have heard."""
    offered = dict(rates)
    for _ in range(4):
        for node, machine in sim.agents.items():
            part = node_part(sim.topology.network, node)
            here = {name: offered.get(name, 0.0) for name in part.streams}
            sim.measure(node, UNMEASURED, here)
            offered.update(planner_of(machine).plan(here).throughput)
        sim.run(1.5)


def planner_of(machine: Agent[DFitState]) -> OwnTablePlanner:
    assert isinstance(machine.machine, DFit)
    return OwnTablePlanner(machine.machine, lambda: machine.state)


class TestClusters:
    def test_the_first_of_a_cluster_plans_for_all_and_tells_the_others(self) -> None:
        topology = ClusterTopology(example("diamond"))
        assert [topology.leader(i) for i in range(3)] == ["A", "B", "D"]
        assert topology.parent_of(topology.cluster_of("D")) == "B" and topology.parent_of(0) is None
        sim = settled(topology.network, {}, Wire(), 3)
        member = sim.agents["C"]
        planner = planner_of(member)
        seen = {"a1->c1": 2.0, "a2->c2": 2.0}
        alone = planner.plan(seen)
        assert planner.size == 0 and alone.load["C"] == pytest.approx(1.0)
        told_all(sim, {"s1": 4.0, "s2": 4.0})
        ordered = dict(member.state.ordered or {})
        assert set(ordered) == {"a1->c1", "a2->c2"} and planner.plan(seen).keeps == pytest.approx(ordered)
        status = member.status(sim.now_seconds)
        assert status["leader"] == "B" and status["cut_off"] == []
        # Cut off, it says so and goes on with what it was last told.
        sim.now_seconds += 60.0
        assert member.status(sim.now_seconds)["cut_off"] == ["B"] and planner.plan(seen).keeps == pytest.approx(ordered)

    @pytest.mark.parametrize("step_seconds", [1.0, 60.0, 3600.0, 86_400.0])
    @pytest.mark.parametrize("forgetful", ["B", "C"])
    def test_who_was_restarted_with_its_clock_set_back_is_heard(self, forgetful: str, step_seconds: float) -> None:
        topology = ClusterTopology(example("diamond"))
        machines = {node: Agent(DFit(topology, node)) for node in ("B", "C")}
        rates = {node: dict.fromkeys(node_part(topology.network, node).streams, 4.0) for node in machines}

        def talk(now: float) -> None:
            for node, machine in machines.items():
                machine.observe(rates[node], UNMEASURED, now)
                for message in machine.tick(now):
                    if message.receiver in machines:
                        answer = machines[message.receiver].hear(message, now)
                        if answer is not None:
                            machine.hear(answer, now)

        for second in range(4):
            talk(1_000_000.0 + second)
        heard, ordered = machines["B"].state.members["C"].number, machines["C"].state.ordered_number
        assert heard > 0 and ordered > 0
        other = "C" if forgetful == "B" else "B"
        machines[forgetful] = Agent(machines[forgetful].machine)
        due = machines[other].state
        machines[other] = Agent(machines[other].machine, replace(due, report_due_seconds=0.0, push_due_seconds=0.0))
        for second in range(4):
            talk(1_000_000.0 - step_seconds + second)
        assert machines["B"].state.members["C"].number > (heard if forgetful == "C" else 0)
        assert machines["C"].state.ordered_number > (ordered if forgetful == "B" else 0)
