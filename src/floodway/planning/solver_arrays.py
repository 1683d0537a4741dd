"""Cells of a solver planner as arrays, and back: no plan in a file may overload what it is meant for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.planning import plan_file
from floodway.planning.program import Matrix, Program
from floodway.planning.quadtree import RegionQuadtree
from floodway.planning.solver_cells import Cell, RateSpace

_SLACK = 1e-6


def cells_to_arrays(cells: list[Cell], tree: RegionQuadtree) -> plan_file.Arrays:
    """One entry a cell in each array."""
    whole = np.zeros((len(cells), tree.dimensions), dtype=np.bool_)
    for number, cell in enumerate(cells):
        whole[number, list(cell.whole)] = True
    corners = tree.children_per_split if any(cell.mix for cell in cells) else 0
    mix = np.full((len(cells), corners), -1, dtype=np.int32)
    for number, cell in enumerate(cells):
        if cell.mix:
            mix[number] = cell.mix
    return {
        "mix": mix,
        "error": np.array([cell.error for cell in cells]),
        "plan": np.array([cell.plan for cell in cells], dtype=np.int64),
        "scale": np.array([cell.scale for cell in cells]),
        "whole": whole,
    }


def cells_from_arrays(
    program: Program,
    space: RateSpace,
    tree: RegionQuadtree,
    plans: Matrix,
    arrays: Mapping[str, NDArray[Any]],
) -> list[Cell]:
    """The cells again, refused unless every leaf's plan is feasible everywhere in its cell."""
    count = len(tree)
    plan = plan_file.array(arrays, "plan", (count,)).astype(np.int64)
    scale = plan_file.array(arrays, "scale", (count,)).astype(np.float64)
    error = plan_file.array(arrays, "error", (count,)).astype(np.float64)
    whole = plan_file.array(arrays, "whole", (count, tree.dimensions)).astype(np.bool_)
    plan_file.require(bool(((plan >= -1) & (plan < len(plans))).all()), "a cell names a plan that is not there")
    mix = plan_file.array(arrays, "mix", (count, None)).astype(np.int64)
    mixed = np.asarray((mix >= 0).any(axis=1))
    fits = mix.shape[1] in (0, tree.children_per_split) and bool(((mix >= 0) & (mix < len(plans)))[mixed].all())
    plan_file.require(fits, "a cell mixes plans that are not there")
    plan_file.require(bool(((scale >= 0) & (scale <= 1)).all()), "a scale is outside [0, 1]")
    plan_file.require(bool(((error >= 0) & (error <= 1)).all()), "an error is outside [0, 1]")
    within = plans @ program.use.T <= program.capacity * (1 + _SLACK)
    plan_file.require(bool((plans >= 0).all() and within.all()), "a plan overloads a resource")
    share = (program.full_use / program.capacity[:, None])[:, space.dimensions]
    for number in range(count):
        if not tree.is_leaf(number):
            continue
        _, upper = tree.corners(number)
        used = float((share @ np.where(whole[number], upper, 0.0)).max(initial=0.0))
        room = 1.0 - float(scale[number]) + _SLACK
        if mixed[number]:
            continue  # A mix of feasible plans is feasible.
        if plan[number] < 0:
            used, room = float((share @ upper).max(initial=0.0)), 1.0 + _SLACK
        plan_file.require(used <= room, "a cell keeps more than there is room for")
    return [
        Cell(error=e, plan=p, scale=s, whole=tuple(np.flatnonzero(w).tolist()), mix=tuple(x) if m else ())
        for e, p, s, w, x, m in zip(
            error.tolist(), plan.tolist(), scale.tolist(), whole, mix.tolist(), mixed.tolist(), strict=True
        )
    ]
