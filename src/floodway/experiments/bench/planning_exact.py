"""The exact planner's look-up against the solver it stands in front of.

The peer is a *warm* solve, the best HiGHS can do here: the model stays, only bounds change, the simplex method starts
from the last basis, and the solution is read as an array. Both get the same rates in the same order.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from floodway.experiments.bench.result import BenchResult, each, interleave, portions_of, rounded, timed
from floodway.experiments.result import Progress
from floodway.experiments.staying_fit.networks import many_inputs
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.exact import ExactPlanner
from floodway.planning.lp import LinearProgram
from floodway.planning.program import Program

Vector = NDArray[np.float64]

NODES = 4
MAX_RATE = 8.0
SEED = 20070923
GOAL = 5.0
PORTION = 50
WALK_STEP = 0.05


class WarmSolver(LinearProgram):
    """The peer: change bounds, run, read the solution."""

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows x (tuples/s)."""
        self.run(rates)
        return np.array(self._highs.getSolution().col_value) * self.unit


def chains(inputs: int, nodes: int = NODES, seed: int = SEED) -> Network:
    """Every input passes all nodes; costs and weights are drawn, so that no two inputs tie."""
    generator = np.random.default_rng(seed)
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for i in range(inputs):
        source = f"s{i}"
        for n in range(nodes):
            cost = float(generator.uniform(0.1, 1.0)) / inputs
            operators[f"o{i}.{n}"] = Operator(f"o{i}.{n}", f"n{n}", (source,), cost=cost)
            source = f"o{i}.{n}"
        outputs[f"q{i}"] = Output(f"q{i}", source, weight=float(generator.uniform(0.5, 2.0)))
    streams = {f"s{i}": Stream(f"s{i}", MAX_RATE) for i in range(inputs)}
    return Network(f"chains-{inputs}", streams, {f"n{n}": Node(f"n{n}") for n in range(nodes)}, operators, outputs)


def overloaded_rates(program: Program, count: int, top: float, seed: int = SEED) -> list[Vector]:
    """Independent uniform rates; those that overload nothing are left out, as they need no look-up."""
    drawn = np.random.default_rng(seed).uniform(0.0, top, (count, len(program.streams)))
    return [rates for rates in drawn if program.overloaded(rates)]


def walk_of_rates(program: Program, steps: int, seed: int = SEED) -> list[Vector]:
    """A random walk of the logarithms of all rates, reflected by bounds on both sides: traffic that drifts."""
    generator = np.random.default_rng(seed)
    low, high = 0.25, MAX_RATE
    rates = np.full(len(program.streams), 2.0)
    path: list[Vector] = []
    for _ in range(steps):
        rates = np.clip(rates * np.exp(generator.normal(0.0, WALK_STEP, len(rates))), low, high)
        path.append(rates)
    return path


def _exact(inputs: int, *, long: bool, progress: Progress) -> BenchResult:
    program = Program(chains(inputs))
    planner, solver = ExactPlanner(program), WarmSolver(program)
    rates = overloaded_rates(program, 20_000 if long else 4_000, MAX_RATE)
    # The map is filled and the solver warmed first: this is about look-ups, `region-map` counts misses too.
    each(planner.flows)(rates)
    each(solver.flows)(rates[:PORTION])
    progress(0.2)
    portions = portions_of(rates, PORTION)
    pairs = interleave(each(planner.flows), each(solver.flows), portions)
    progress(0.6)
    as_keeps = interleave(each(planner.lookup), each(solver.flows), portions[: len(portions) // 2])
    progress(0.7)
    with_check = interleave(each(planner.keeps), each(solver.solve), portions[: len(portions) // 2])
    progress(0.8)
    ties = _with_ties(inputs, 1_000)
    progress(1.0)
    off = max(abs(planner.optimum(r) / program.score(solver.flows(r)) - 1.0) for r in rates[:100])
    micro = 1e6 / PORTION
    return BenchResult(
        id=f"planning-exact-{inputs}",
        ours=rounded(pairs.ours_median * micro),
        peer=rounded(pairs.peer_median * micro),
        ratio=rounded(pairs.ratio),
        goal=f"peer / ours >= {GOAL:g}",
        holds=pairs.ratio >= GOAL,
        unit="CPU µs a plan",
        detail={
            "peer": "warm HiGHS solve: model kept, bounds changed, run, solution read",
            "rates": f"independent, uniform from 0 to {MAX_RATE:g} tuples/s an input",
            "look-ups": len(rates),
            "regions": planner.size,
            "largest relative difference of the optimum": off,
            "as keeps, against flows from the solver": {
                "ours": rounded(as_keeps.ours_median * micro),
                "ratio": rounded(as_keeps.ratio),
            },
            "with the overload check, against a solve that reads the basis": {
                "ours": rounded(with_check.ours_median * micro),
                "peer": rounded(with_check.peer_median * micro),
                "ratio": rounded(with_check.ratio),
            },
            "identical inputs (the papers' network, full of ties)": ties,
        },
    )


def _with_ties(inputs: int, count: int) -> dict[str, float]:
    program = Program(many_inputs(inputs, 100.0))
    planner, solver = ExactPlanner(program), WarmSolver(program)
    rates = overloaded_rates(program, count, 100.0)
    each(planner.lookup)(rates)
    pairs = interleave(each(planner.lookup), each(solver.flows), portions_of(rates, PORTION))
    return {
        "ours": rounded(pairs.ours_median * 1e6 / PORTION),
        "peer": rounded(pairs.peer_median * 1e6 / PORTION),
        "ratio": rounded(pairs.ratio),
        "regions": planner.size,
    }


two = partial(_exact, 2)
four = partial(_exact, 4)
eight = partial(_exact, 8)
sixteen = partial(_exact, 16)


def walk(*, long: bool, progress: Progress) -> BenchResult:
    """From an empty map: what a plan costs on average when misses are solved on the way."""
    inputs, steps = 8, 50_000 if long else 10_000
    program = Program(chains(inputs))
    planner, solver = ExactPlanner(program), WarmSolver(program)
    path = walk_of_rates(program, steps)
    overloaded = sum(program.overloaded(rates) for rates in path)
    misses: list[int] = []
    spent_ours = spent_peer = 0.0
    # Totals here, not medians: a few misses among thousands of hits are just what is to be counted.
    for number, portion in enumerate(portions_of(path, steps // 20), 1):
        before = planner.misses
        spent_ours += timed(partial(each(planner.keeps), portion))[1]
        spent_peer += timed(partial(each(solver.flows), portion))[1]
        misses.append(planner.misses - before)
        progress(number / 20)
    ratio = spent_peer / spent_ours
    return BenchResult(
        id="planning-region-map",
        ours=rounded(spent_ours / steps * 1e6),
        peer=rounded(spent_peer / steps * 1e6),
        ratio=rounded(ratio),
        goal="peer / ours > 1, from an empty map, misses included",
        holds=ratio > 1.0,
        unit="CPU µs a plan",
        detail={
            "peer": "warm HiGHS solve at every step",
            "walk": f"{steps} steps of {WALK_STEP:.0%} of each of {inputs} rates",
            "overloaded": overloaded,
            "regions": planner.size,
            "misses": planner.misses,
            "miss rate": rounded(planner.misses / max(overloaded, 1)),
            "misses by twentieth of the walk": misses,
        },
    )
