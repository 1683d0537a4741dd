"""One cluster's best plan when its children are known by their tables only.

A child's table is a set of (rates, score) pairs it can serve. Mixtures of pairs can be served too, so with weights
λ_j >= 0, sum λ_j <= 1 for the rows of each child, the cluster solves

    maximise    own outputs + sum λ_j · score_j
    subject to  sum_j λ_j · rates_j <= what the exits to that child carry      (the rest of the local
    program unchanged)

This is merge, propagation and local plan in one, for splits, unions and joins alike (long paper, section 6.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from floodway.planning.fit.local import LocalProgram
from floodway.planning.lp import OBJECTIVE_SIZE, column_units, new_model, solve
from floodway.planning.program import Matrix, Vector


class Rows(Protocol):
    """What the program needs of a child's table."""

    @property
    def rates(self) -> Matrix:
        """Rows × inputs."""
        ...

    @property
    def scores(self) -> Vector:
        """One score a row."""
        ...


class HullProgram:
    """The program kept in HiGHS; `solve(offered)` changes bounds only."""

    def __init__(self, local: LocalProgram, children: Sequence[Rows]) -> None:
        self.local = local
        program = local.program
        own, mixed = program.size, sum(len(child.scores) for child in children)
        self._unit = column_units(local.share)
        blocks = [np.hstack([local.share * self._unit, np.zeros((len(local.share), mixed))])]
        bounds = [np.ones(len(local.share))]
        nesting = _normed(program.nesting * self._unit)
        blocks.append(np.hstack([nesting, np.zeros((len(nesting), mixed))]))
        bounds.append(np.zeros(len(nesting)))
        start = own
        for child, exits in zip(children, local.exits, strict=True):
            size = len(child.scores)
            block = np.zeros((len(exits) + 1, own + mixed))
            block[:-1, :own] = -program.throughput[list(exits)] * self._unit
            block[:-1, start : start + size] = child.rates.T
            block[:-1] = _normed(block[:-1])
            block[-1, start : start + size] = 1.0
            blocks.append(block)
            bounds.append(np.append(np.zeros(len(exits)), 1.0))
            start += size
        self._objective = np.concatenate([program.objective * self._unit, *(child.scores for child in children)])
        self._columns = np.flatnonzero(program.stream_of >= 0).astype(np.int32)
        top = float(np.abs(self._objective).max(initial=0.0)) or 1.0
        scaled = self._objective * (OBJECTIVE_SIZE / top)
        self._highs = new_model(np.vstack(blocks), scaled, upper=np.concatenate(bounds))

    def solve(self, offered: Vector) -> tuple[Vector, float]:
        """Flows on the cluster's free arcs, and the score of the cluster with all below it."""
        program = self.local.program
        upper = offered[program.stream_of[self._columns]] / self._unit[self._columns]
        self._highs.changeColsBounds(len(upper), self._columns, np.zeros(len(upper)), upper)
        solve(self._highs, program.network.name)
        values = np.maximum(np.array(self._highs.getSolution().col_value), 0.0)
        return values[: program.size] * self._unit, float(self._objective @ values)


def _normed(rows: Matrix) -> Matrix:
    if not len(rows):
        return rows
    top = np.abs(rows).max(axis=1, keepdims=True)
    return np.asarray(rows / np.where(top > 0, top, 1.0))
