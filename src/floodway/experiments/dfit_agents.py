"""A thousand D-FIT agents: how long until all tables agree, what that costs, and how good the plans are.

A random tree of nodes, each with an agent of its own (the real machines and the real bytes, on a simulated clock and a
network that delays and loses messages). All start from the network file; then every node measures costs other than
the file's, and later one leaf finds its work twice as dear. Measured after each: time until no table changes any more,
bytes and rows sent, and the error of what the agents then decide, each from its own table, against the linear program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from floodway.agent.planes.dfit.own import NodeMeasures, as_measured
from floodway.agent.planes.dfit.simulation import SimulatedAgents, Wire
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.experiments.staying_fit.networks import SOURCE
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program

TITLE = "A thousand agents agree on their tables"
CLAIM = Claim(
    SOURCE,
    "Sections 6.3 and 8.2.5",
    "each node sheds for itself and all below it from its own table; a row takes 22·m + 8 bytes on the wire, and after "
    "a change only rows that changed are sent again",
)
AGENTS = (10, 100, 1000)
EPSILON = 0.05
WIRE = Wire(loss=0.01, double=0.01, delay_seconds=(0.001, 0.05))
TICK_SECONDS = 0.25
QUIET_SECONDS = 5.0
MOST_SECONDS = 120.0
PROBES = 4
MAX_RATE = 2.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """What it took until no table changed any more, and the largest error of the plans after it."""

    seconds: float
    messages: int
    bytes: int
    tables: int
    rows: int
    paper_bytes: int
    error: float

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return {
            "seconds": round(self.seconds, 2),
            "messages": self.messages,
            "bytes": self.bytes,
            "tables": self.tables,
            "rows": self.rows,
            "bytes of these rows in the paper": self.paper_bytes,
            "largest error": round(self.error, 6),
        }


@dataclass(frozen=True, slots=True)
class AgentsRun:
    """One network: depth of its tree, agreement after all have measured, and after one leaf has changed."""

    agents: int
    depth: int
    first: Agreement
    change: Agreement


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Three sizes, one seed each: a run of a thousand agents is long."""
    runs: list[AgentsRun] = []
    for count in AGENTS:
        runs.append(simulate(count, seed=seeds[0]))
        progress(sum(AGENTS[: len(runs)]) / sum(AGENTS))
    return judged(runs)


def judged(runs: Sequence[AgentsRun]) -> Result:
    """The verdict on these runs, from the smallest network to the largest."""
    last = runs[-1]
    worst = max(max(found.first.error, found.change.error) for found in runs)
    smaller = all(found.first.bytes < found.first.paper_bytes for found in runs)
    local = all(found.change.rows < found.first.rows for found in runs[1:])
    return Result(
        measured={
            f"{found.agents} agents": {
                "depth": found.depth,
                "all nodes measured": found.first.to_dict(),
                "one leaf changed": found.change.to_dict(),
            }
            for found in runs
        },
        criteria=(
            Criterion(
                f"plans are within {EPSILON:g} of the optimum after both agreements", worst <= EPSILON, f"{worst:.2%}"
            ),
            Criterion("tables take fewer bytes than the paper's rows would", smaller),
            Criterion("one changed leaf sends fewer rows than the first agreement", local),
        ),
        where="simulation",
        notes=(
            f"Random trees of two streams, ε = {EPSILON:g}; messages take 1-50 ms, 1% are lost and 1% doubled; agents "
            f"tick every {TICK_SECONDS:g} s.",
            "Bytes are whole messages, answers and signs of life included; the paper's would be rows alone.",
            "The error is against the linear program of the network as measured, over rates up to four times what the "
            "root can take.",
        ),
        headline=f"{last.agents} agents, depth {last.depth}: agreed after {last.first.seconds:.1f} s and "
        f"{last.first.bytes / last.agents / 1000:.1f} kB an agent ({last.first.bytes / last.first.paper_bytes:.0%} of "
        f"the paper's rows); one changed leaf: {last.change.seconds:.1f} s, {last.change.tables} tables; largest error "
        f"{worst:.2%}",
        plots={"dfit-agents": lambda: _draw(runs)},
    )


def simulate(agents: int, *, seed: int, wire: Wire = WIRE) -> AgentsRun:
    """All agents of one random tree from the start to the second agreement."""
    rng = np.random.default_rng([seed, agents])
    network = random_tree(agents, rng)
    topology = ClusterTopology(network, EPSILON)
    sim = SimulatedAgents(topology, rng, wire=wire, tick_seconds=TICK_SECONDS)
    measured: dict[str, NodeMeasures] = {}
    for node in network.nodes:
        own = {name: op.cost or 0.0 for name, op in network.operators.items() if op.node == node}
        measured[node] = NodeMeasures({name: cost * float(rng.uniform(0.7, 1.4)) for name, cost in own.items()}, {})
        sim.measure(node, measured[node])
    first = _agree(sim, measured, rng)
    leaf = f"n{agents - 1}"
    dearer = {name: 2.0 * cost for name, cost in measured[leaf].costs.items()}
    measured[leaf] = replace(measured[leaf], costs=dearer)
    sim.measure(leaf, measured[leaf])
    return AgentsRun(agents, _depth(network), first, _agree(sim, measured, rng))


def random_tree(nodes: int, rng: np.random.Generator) -> Network:
    """Every node reads both streams as its parent emits them; parents are drawn from the last few nodes before."""
    operators: dict[str, Operator] = {}
    parents: set[int] = set()
    for i in range(nodes):
        # Few children each, and a depth that grows with the logarithm of the size.
        parent = int(rng.integers((i - 1) // 4, (i - 1) // 2 + 1)) if i else -1
        parents.add(parent)
        for j in range(2):
            source = f"s{j}" if i == 0 else f"o{parent}.{j}"
            # The upper tenth has it easy, so that what is short is down below, where only tables tell of it.
            cost = float(rng.uniform(0.2, 2.0)) * (0.2 if i < nodes / 10 else 1.0)
            selectivity = float(rng.choice([0.5, 1.0, 1.5]))
            operators[f"o{i}.{j}"] = Operator(f"o{i}.{j}", f"n{i}", (source,), cost=cost, selectivity=selectivity)
    outputs = {
        f"q{i}.{j}": Output(f"q{i}.{j}", f"o{i}.{j}", weight=float(rng.uniform(0.5, 2.0)))
        for i in range(nodes)
        if i not in parents
        for j in range(2)
    }
    streams = {f"s{j}": Stream(f"s{j}", MAX_RATE) for j in range(2)}
    return Network("random-tree", streams, {f"n{i}": Node(f"n{i}") for i in range(nodes)}, operators, outputs)


def _agree(sim: SimulatedAgents, measured: Mapping[str, NodeMeasures], rng: np.random.Generator) -> Agreement:
    before = dict(sim.traffic.counts)
    seconds = sim.settle(QUIET_SECONDS, MOST_SECONDS)
    spent = {name: count - before.get(name, 0) for name, count in sim.traffic.counts.items()}
    program = Program(as_measured(sim.topology.network, measured))
    solver = LinearProgram(program)
    tops = program.max_feasible_rates
    error = 0.0
    for part in rng.random((PROBES, len(tops))) * 4.0:
        rates = part * tops
        best = program.score(solver.solve(rates)[0])
        got = sim.score(dict(zip(program.streams, rates.tolist(), strict=True)))
        error = max(error, 1.0 - got / best)
    return Agreement(
        seconds,
        spent["messages"],
        spent["bytes"],
        spent.get("tables", 0),
        spent.get("rows", 0),
        spent.get("paper_bytes", 0),
        error,
    )


def _depth(network: Network) -> int:
    deep: dict[str, int] = {}
    for name in network.order:
        above = network.operators[name].inputs[0]
        deep[name] = deep.get(above, 0) + 1
    return max(deep.values())


def _draw(runs: Sequence[AgentsRun]) -> Figure:
    figure, axes = panels(1, 2, width=9.0, height=3.6)
    sizes = [found.agents for found in runs]
    lines(
        axes[0],
        sizes,
        {
            "all nodes measured": [found.first.seconds for found in runs],
            "one leaf changed": [found.change.seconds for found in runs],
        },
        marker="o",
    )
    lines(
        axes[1],
        sizes,
        {
            "sent": [found.first.bytes / found.agents / 1000 for found in runs],
            "the same rows in the paper": [found.first.paper_bytes / found.agents / 1000 for found in runs],
        },
        marker="o",
    )
    for axis in axes:
        axis.set_xscale("log")
    style(axes[0], title="Until no table changes", x="agents", y="seconds", legend=True)
    style(axes[1], title="Sent until then", x="agents", y="kB an agent", legend=True)
    return figure
