"""One cluster's best plan when its children are known by their tables only.

A child's table is a set of (rates, score) pairs it can serve. Mixtures of pairs can be served too, so with weights
λ_j >= 0, sum λ_j <= 1 for the rows of each child, the cluster solves

    maximise    own outputs + sum λ_j · score_j
    subject to  sum_j λ_j · rates_j <= what the exits to that child carry      (the rest of the local
    program unchanged)

This is merge, propagation and local plan in one, for splits, unions and joins alike (long paper, section 6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import highspy
import numpy as np

from floodway.errors import PlanningError
from floodway.planning.fit.local import LocalProgram
from floodway.planning.program import Matrix, Vector

_new_highs: Callable[[], Any] = highspy.Highs


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
        scarcest = local.share.max(axis=0, initial=0.0)
        typical = 1.0 / float(np.median(scarcest[scarcest > 0])) if scarcest.any() else 1.0
        self._unit = np.where(scarcest > 0, 1.0 / np.where(scarcest > 0, scarcest, 1.0), typical)
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
        self._highs = _model(np.vstack(blocks), np.concatenate(bounds), self._objective)

    def solve(self, offered: Vector) -> tuple[Vector, float]:
        """Flows on the cluster's free arcs, and the score of the cluster with all below it."""
        program = self.local.program
        upper = offered[program.stream_of[self._columns]] / self._unit[self._columns]
        self._highs.changeColsBounds(len(upper), self._columns, np.zeros(len(upper)), upper)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            # Once in a thousand solves the basis of the one before leads nowhere; from scratch it does.
            self._highs.clearSolver()
            self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise PlanningError(
                f"the local program of {program.network.name!r} could not be solved",
                hint="Costs, weights or rates may differ by too many orders of magnitude; check their units",
            )
        values = np.maximum(np.array(self._highs.getSolution().col_value), 0.0)
        return values[: program.size] * self._unit, float(self._objective @ values)


def _normed(rows: Matrix) -> Matrix:
    if not len(rows):
        return rows
    top = np.abs(rows).max(axis=1, keepdims=True)
    return np.asarray(rows / np.where(top > 0, top, 1.0))


def _model(matrix: Matrix, bound: Vector, objective: Vector) -> Any:
    highs = _new_highs()
    for option, value in (("output_flag", False), ("presolve", "off"), ("solver", "simplex"), ("threads", 1)):
        highs.setOptionValue(option, value)
    rows, columns = matrix.shape
    column_of, row_of = np.nonzero(matrix.T)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    top = float(np.abs(objective).max(initial=0.0))
    model.col_cost_ = objective * (1e3 / top) if top > 0 else objective
    model.col_lower_ = np.zeros(columns)
    model.col_upper_ = np.full(columns, highspy.kHighsInf)
    model.row_lower_ = np.full(rows, -highspy.kHighsInf)
    model.row_upper_ = bound
    model.sense_ = highspy.ObjSense.kMaximize
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(column_of, np.arange(columns + 1)).astype(np.int32)
    model.a_matrix_.index_ = row_of.astype(np.int32)
    model.a_matrix_.value_ = matrix.T[column_of, row_of]
    highs.passModel(model)
    return highs
