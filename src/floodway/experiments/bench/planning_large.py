"""Large networks: a tree of a thousand nodes, and a program of a thousand drop locations on a hundred nodes.

Peers: for the tree, passing its program to HiGHS and solving it once, which answers one vector of rates where the table
answers all; for the program, the same solver given the model anew each time.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from floodway.experiments.bench.planning_exact import WarmSolver
from floodway.experiments.bench.result import BenchResult, interleave, rounded, timed
from floodway.experiments.result import Progress
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.program import Program

SEED = 20070923
TREE_NODES, BRANCHING = 1000, 2
TREE_EPSILON = 0.1
TREE_GOAL_SECONDS, TREE_GOAL_ERROR = 1.0, 0.02
PROBES = 200
LOCATIONS, NODES = 1000, 100
LP_GOAL_MS = 10.0
DRIFT = 0.1


def tree_network(nodes: int = TREE_NODES, branching: int = BRANCHING, seed: int = SEED) -> Network:
    """Two streams enter at the root; every operator's output goes to all children; the leaves have the outputs."""
    generator = np.random.default_rng(seed)
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for i in range(nodes):
        for j in range(2):
            source = f"s{j}" if i == 0 else f"o{(i - 1) // branching}.{j}"
            cost, selectivity = float(generator.uniform(0.2, 2.0)), float(generator.choice([0.5, 1.0, 1.5]))
            operators[f"o{i}.{j}"] = Operator(f"o{i}.{j}", f"n{i}", (source,), cost=cost, selectivity=selectivity)
            if branching * i + 1 >= nodes:
                weight = float(generator.uniform(0.5, 2.0))
                outputs[f"q{i}.{j}"] = Output(f"q{i}.{j}", f"o{i}.{j}", weight=weight)
    streams = {f"s{j}": Stream(f"s{j}", 2.0) for j in range(2)}
    return Network(f"tree-{nodes}", streams, {f"n{i}": Node(f"n{i}") for i in range(nodes)}, operators, outputs)


def wide_network(locations: int = LOCATIONS, nodes: int = NODES, seed: int = SEED) -> Network:
    """As many streams as drop locations, each through two nodes chosen at random."""
    generator = np.random.default_rng(seed)
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for i in range(locations):
        first, second = generator.choice(nodes, 2, replace=False)
        costs = generator.uniform(0.1, 1.0, 2)
        operators[f"a{i}"] = Operator(f"a{i}", f"n{first}", (f"s{i}",), cost=float(costs[0]))
        operators[f"b{i}"] = Operator(f"b{i}", f"n{second}", (f"a{i}",), cost=float(costs[1]))
        outputs[f"q{i}"] = Output(f"q{i}", f"b{i}", weight=float(generator.uniform(0.5, 2.0)))
    streams = {f"s{i}": Stream(f"s{i}", 1.0) for i in range(locations)}
    return Network("wide", streams, {f"n{n}": Node(f"n{n}") for n in range(nodes)}, operators, outputs)


def tree(*, long: bool, progress: Progress) -> BenchResult:
    """CPU seconds to build the table, and its largest error at 200 random rates."""
    repeats = 5 if long else 3
    program, program_seconds = timed(lambda: Program(tree_network()))
    building: list[float] = []
    for number in range(repeats):
        planner, seconds = timed(lambda: FitPlanner(program, TREE_EPSILON))
        building.append(seconds)
        progress(0.5 * (number + 1) / repeats)
    solver, model_seconds = timed(lambda: WarmSolver(program))
    errors: list[float] = []
    solving: list[float] = []
    looking: list[float] = []
    top = np.minimum(program.max_feasible_rates * 4, 2.0)
    for number, rates in enumerate(np.random.default_rng(SEED).uniform(0.0, 1.0, (PROBES, 2)) * top):
        best, seconds = timed(partial(solver.flows, rates))
        solving.append(seconds)
        ours, seconds = timed(partial(planner.flows, rates))
        looking.append(seconds)
        errors.append(1.0 - program.score(ours) / program.score(best))
        progress(0.5 + 0.5 * (number + 1) / PROBES)
    built, peer = median(building), model_seconds + solving[0]
    return BenchResult(
        id="planning-fit-tree",
        ours=rounded(built),
        peer=rounded(peer),
        ratio=rounded(peer / built),
        goal=f"ours < {TREE_GOAL_SECONDS:g} s, error <= {TREE_GOAL_ERROR:.0%} at {PROBES} random rates",
        holds=built < TREE_GOAL_SECONDS and max(errors) <= TREE_GOAL_ERROR,
        unit="CPU s",
        detail={
            "peer": "model passed to HiGHS and solved once, for one vector of rates",
            "nodes": TREE_NODES,
            "arcs": program.size,
            "rows": planner.size,
            "builds": [rounded(value) for value in building],
            "largest error": rounded(max(errors)),
            "mean error": rounded(sum(errors) / len(errors)),
            "program, needed by both (CPU s)": rounded(program_seconds),
            "look-up (CPU µs)": rounded(median(looking) * 1e6),
            "warm solve (CPU µs)": rounded(median(solving) * 1e6),
        },
    )


def lp(*, long: bool, progress: Progress) -> BenchResult:
    """A warm solve after every rate has moved by about 10%."""
    program = Program(wide_network())
    kept = WarmSolver(program)
    generator = np.random.default_rng(SEED)
    base = generator.uniform(0.05, 0.4, LOCATIONS)
    kept.flows(base)
    progress(0.2)
    drawn: list[NDArray[np.float64]] = [
        base * np.exp(generator.normal(0.0, DRIFT, LOCATIONS)) for _ in range(100 if long else 30)
    ]
    pairs = interleave(kept.flows, lambda rates: WarmSolver(program).flows(rates), drawn)
    progress(1.0)
    ours = pairs.ours_median * 1e3
    return BenchResult(
        id="planning-lp-1000",
        ours=rounded(ours),
        peer=rounded(pairs.peer_median * 1e3),
        ratio=rounded(pairs.ratio),
        goal=f"ours < {LP_GOAL_MS:g} ms",
        holds=ours < LP_GOAL_MS,
        unit="CPU ms a solve",
        detail={
            "peer": "the same solver with the model passed anew for every solve",
            "drop locations": LOCATIONS,
            "nodes": NODES,
            "solves": len(drawn),
            "slowest of ours (ms)": rounded(max(pairs.ours) * 1e3),
        },
    )
