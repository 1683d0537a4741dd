"""The optimum to compare tables with: optimal plans, probe rates and errors of one block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from floodway.planning.exact import ExactPlanner
from floodway.planning.fit.plan_table import useful_rates
from floodway.planning.fit.reduce import ProgramBlock, Reduced, reduce_program
from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.program import Matrix, Program, Vector

_PROBES = 48
_AXES = 32
_SEED = 20070923
"""Probes are part of a build, and a build has to repeat itself."""


class FlowTable(Protocol):
    """What every kind of table can do."""

    @property
    def rows(self) -> int:
        """Rows held."""
        ...

    def flows(self, rates: Vector) -> Vector:
        """Flows on the block's arcs at rates of its streams."""
        ...


class Oracle:
    """Solves the program, block by block; nothing is set up before it is needed."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def reduced(self) -> Reduced:
        """The program without free arcs, in blocks."""
        return reduce_program(self.program)

    @cached_property
    def lp(self) -> LinearProgram:
        """A model of our own: bases are needed here, and the exact planner keeps its to itself."""
        return LinearProgram(self.program)

    @cached_property
    def _exact(self) -> ExactPlanner:
        return ExactPlanner(self.program)

    def optimal(self, block: ProgramBlock, here: Matrix) -> Matrix:
        """Optimal flows on a block's arcs for rows of rates of its streams."""
        arcs = self.reduced.costly[block.arcs]
        rates = np.zeros(len(self.program.streams))
        flows = np.empty((len(here), len(arcs)))
        for row, point in enumerate(here):
            rates[block.streams] = point
            flows[row] = self._exact.flows(rates)[arcs]
        # The solver is right to 1e-9; clipping makes flows exactly what can arrive.
        return block.clip(np.maximum(flows, 0.0), here)

    def optima(self, block: ProgramBlock, here: Matrix) -> list[float]:
        """The best scores of a block for rows of rates of its streams."""
        flows = self.optimal(block, here)
        return [self.value(block, flow, rates) for flow, rates in zip(flows, here, strict=True)]

    def value(self, block: ProgramBlock, flow: Vector, here: Vector) -> float:
        """Score of flows on a block's arcs, with what its streams earn on free arcs."""
        return float(block.value.dot(flow) + self.reduced.rate_value[block.streams].dot(here))

    def basis(self, block: ProgramBlock, here: Vector) -> Basis:
        """An optimal basis with only this block's streams flowing."""
        rates = np.zeros(len(self.program.streams))
        rates[block.streams] = here
        return self.lp.solve(rates)[1]

    def probes(self, block: ProgramBlock) -> Matrix:
        """Rates that find errors: axes, corners, tiny parts, and a spread of random mixes.

        Up to twice what can be brought without drops, and, where splits make higher rates useful, up to those too.
        """
        rng = np.random.default_rng(_SEED)
        inputs = len(block.streams)
        tops = self.program.max_feasible_rates[block.streams]
        tops = 2.0 * np.where(np.isfinite(tops), tops, 1.0)
        random = rng.random((_PROBES, inputs)) ** rng.choice([0.5, 1.0, 3.0], size=(_PROBES, 1))
        mixed = random * rng.choice([1.0, 1e-3], size=random.shape, p=[0.85, 0.15])
        axes = np.eye(inputs)[:_AXES]
        shape = np.vstack([axes, np.ones((1, inputs)), 1.0 - axes, mixed])
        useful = np.maximum(tops, useful_rates(block))
        return np.vstack([shape * tops, shape * useful]) if np.any(useful > tops) else shape * tops

    def errors(self, block: ProgramBlock, table: FlowTable, probes: Matrix, best: Sequence[float] | Vector) -> Vector:
        """Relative errors of a table at probes whose optima are `best`; 0 where there is nothing to earn."""
        return np.array(
            [
                1.0 - self.value(block, table.flows(here), here) / top if top > 0 else 0.0
                for here, top in zip(probes, best, strict=True)
            ]
        )

    def worst(self, block: ProgramBlock, table: FlowTable, probes: Matrix, best: Sequence[float]) -> float:
        """The largest of these errors."""
        return max(0.0, float(self.errors(block, table, probes, best).max(initial=0.0)))
