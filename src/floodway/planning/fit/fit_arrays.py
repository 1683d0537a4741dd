"""FIT tables as arrays, for the one plan file: what is loaded is checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.planning import plan_file
from floodway.planning.fit.direct import DirectTable
from floodway.planning.fit.plan_table import PlanTable, block_filler
from floodway.planning.fit.reduce import ProgramBlock
from floodway.planning.program import FEASIBILITY_TOLERANCE, Matrix, Program, Vector


@dataclass(frozen=True)
class SavedTables:
    """What a plan file holds; `tables` makes sense of it for the blocks of the network."""

    arrays: Mapping[str, NDArray[Any]]
    tree: PlanTable | None

    def tables(self, blocks: Sequence[ProgramBlock]) -> list[DirectTable | PlanTable]:
        """One table a block."""
        return [_table(self.arrays, i, block) for i, block in enumerate(blocks)]


def pack(tree: PlanTable | None, tables: Sequence[DirectTable | PlanTable]) -> tuple[plan_file.Meta, plan_file.Arrays]:
    """Meta and arrays of a planner's tables."""
    arrays: plan_file.Arrays = {}
    for i, table in enumerate(tables if tree is None else [tree]):
        if isinstance(table, DirectTable):
            arrays[f"codes{i}"] = table.codes
            _put_axes(arrays, i, table.points)
        else:
            arrays[f"plans{i}"] = table.plans
            _put_axes(arrays, i, table.axes)
    return {"tree": tree is not None}, arrays


def unpack(program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedTables:
    """The tables of a plan file; blocks are looked at when the planner has them."""
    if not meta.get("tree"):
        return SavedTables(arrays, None)
    axes = _axes(arrays, 0, len(program.streams))
    plans = plan_file.array(arrays, "plans0", (_size(axes), program.size)).astype(np.float64)
    used = plans @ (program.use / program.capacity[:, None]).T
    plan_file.require(_sound(plans, used), "a plan of the table is not feasible")
    return SavedTables(arrays, PlanTable(axes, plans, program.objective))


def _table(arrays: Mapping[str, NDArray[Any]], i: int, block: ProgramBlock) -> DirectTable | PlanTable:
    axes = _axes(arrays, i, len(block.streams))
    if not block.direct:
        plans = plan_file.array(arrays, f"plans{i}", (_size(axes), len(block.arcs))).astype(np.float64)
        plan_file.require(_sound(plans, plans @ block.share.T), "a plan of the table is not feasible")
        return PlanTable(axes, plans, block.value, block_filler(block))
    codes = plan_file.array(arrays, f"codes{i}", (None, len(axes)))
    plan_file.require(codes.dtype == np.uint16 and len(codes) > 0, "rows are of the wrong kind")
    plan_file.require(all(codes[:, j].max() < len(axis) for j, axis in enumerate(axes)), "a row is outside its grid")
    table = DirectTable(block, axes, codes)
    rates = np.column_stack([axis[codes[:, j]] for j, axis in enumerate(axes)])
    plan_file.require(_sound(rates, rates @ block.share[:, block.column_of()].T), "a row is not feasible")
    return table


def _put_axes(arrays: plan_file.Arrays, i: int, axes: Sequence[Vector]) -> None:
    arrays[f"axes{i}"] = np.concatenate(axes)
    arrays[f"lengths{i}"] = np.array([len(axis) for axis in axes], dtype=np.int64)


def _axes(arrays: Mapping[str, NDArray[Any]], i: int, count: int) -> list[Vector]:
    lengths = plan_file.array(arrays, f"lengths{i}", (count,)).astype(np.int64)
    plan_file.require(bool((lengths > 0).all()), "an axis is empty")
    points = plan_file.array(arrays, f"axes{i}", (int(lengths.sum()),)).astype(np.float64)
    axes = np.split(points, np.cumsum(lengths)[:-1])
    plan_file.require(all(axis[0] == 0 and bool((np.diff(axis) > 0).all()) for axis in axes), "an axis is out of order")
    return axes


def _size(axes: Sequence[Vector]) -> int:
    return int(np.prod([len(axis) for axis in axes]))


def _sound(flows: Matrix, used: Matrix) -> bool:
    return bool((flows >= 0).all() and (used <= 1 + 10 * FEASIBILITY_TOLERANCE).all())
