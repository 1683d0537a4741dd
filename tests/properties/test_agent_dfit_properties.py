"""Whatever happens to messages and agents they come to the same tables, and with them near the optimum."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.agent.planes.agent import Agent
from floodway.agent.planes.dfit.own import NodeMeasures, as_measured
from floodway.agent.planes.dfit.simulation import SimulatedAgents, Wire
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.dfit import DFitPlanner
from floodway.planning.program import Program
from tests.agent.test_agent_dfit import settled, told_all
from tests.effort import tries
from tests.planning.test_planning_fit_nodes import tree
from tests.strategies import networks, rates_for

NETWORK = tree(7, 2, seed=6)
TOPOLOGY = ClusterTopology(NETWORK)
NODES = list(NETWORK.nodes)
RESTARTS = st.lists(st.tuples(st.sampled_from(NODES), st.booleans()), max_size=4)
COSTS = st.dictionaries(st.sampled_from(list(NETWORK.operators)), st.sampled_from((0.25, 0.5, 1.5, 2.5)), max_size=4)


def restart(sim: SimulatedAgents, node: str, with_journal: bool) -> None:
    """Kill an agent and start it anew; what is under way to it arrives at the new one."""
    killed = sim.agents[node]
    machine, text = killed.machine, killed.machine.to_journal(killed.state)
    sim.agents[node] = Agent(machine, machine.from_journal(text, sim.now_seconds) if with_journal else None)
    sim.agents[node].observe({}, killed.state.members[node].measured, sim.now_seconds)


def measured_by_node(costs: dict[str, float]) -> dict[str, NodeMeasures]:
    found: dict[str, dict[str, float]] = {}
    for name, factor in costs.items():
        operator = NETWORK.operators[name]
        found.setdefault(operator.node, {})[name] = factor * (operator.cost or 1.0)
    return {node: NodeMeasures(own, {}) for node, own in found.items()}


@settings(max_examples=tries(12), deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from((0.0, 0.1, 0.4)),
    double=st.sampled_from((0.0, 0.3)),
    slowest=st.sampled_from((0.02, 0.5, 3.0)),
    costs=COSTS,
    restarts=RESTARTS,
)
def test_lost_doubled_overtaken_and_restarted_the_tables_are_the_same(
    seed: int, loss: float, double: float, slowest: float, costs: dict[str, float], restarts: list[tuple[str, bool]]
) -> None:
    measured = measured_by_node(costs)
    wire = Wire(loss, double, (0.001, slowest))
    sim = SimulatedAgents(TOPOLOGY, np.random.default_rng(seed), wire=wire, tick_seconds=0.25)
    for node, found in measured.items():
        sim.measure(node, found)
    for node, with_journal in restarts:
        sim.run(0.7)
        restart(sim, node, with_journal)
    sim.settle(20.0, 400.0)
    central = DFitPlanner(Program(as_measured(NETWORK, measured)), 0.05)
    for i, cluster in enumerate(central.clusters):
        own = sim.agents[cluster.nodes[0]].state.own
        assert own is not None and np.allclose(own.table.rates, central.tables[i].rates, rtol=1e-12)
        assert np.allclose(own.table.scores, central.tables[i].scores, rtol=1e-3, atol=1e-6), cluster.nodes
    assert set(sim.refused) == set()


@settings(max_examples=tries(20), deadline=None, derandomize=True)
@given(st.data(), networks(3, 7, 4))
def test_any_network_is_planned_near_its_optimum_by_agents_that_know_their_children_only(
    data: st.DataObject, network: Network
) -> None:
    rates = data.draw(rates_for(network, above_max=2.0))
    sim = settled(network, {}, Wire(), 1)
    told_all(sim, rates)
    assert sim.score(rates) >= 0.95 * ExactPlanner(Program(network)).plan(rates).score * (1 - 1e-6)
