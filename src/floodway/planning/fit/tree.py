"""C-FIT on large trees: tables carried up node by node, then all plans carried down at once.

Where splits at a thousand nodes make a program of thousands of variables, the papers' propagation is much quicker
than solving it: a few array operations a node bottom-up (`fit_box`), then every grid point of the root is followed
down through the nodes' responses, which gives the flows of a plan for each. Flows that nobody below takes are cut
back to what is taken, so that drops happen as far up as they can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from floodway.network.model import Arc
from floodway.planning.fit.box import Box, respond
from floodway.planning.fit.cluster import cluster_forest
from floodway.planning.fit.local import LocalProgram, local_programs, offered_most, useful_ranges
from floodway.planning.fit.node import build_box
from floodway.planning.fit.plan_table import PlanTable
from floodway.planning.program import Matrix, Program

LARGE = 300
"""Arcs from which on propagation is tried instead of solving on a grid."""
_STEPS = 16


def tree_table(program: Program, steps: int = _STEPS) -> PlanTable | None:
    """Plans on a grid of the streams' rates (flows on all of the program's arcs); None if this is no simple tree."""
    if program.size < LARGE or len(program.streams) > 2:
        return None
    network = program.network
    clusters = cluster_forest(network)
    if (
        not clusters
        or set(clusters[0].inputs) != set(program.streams)
        or len(clusters[0].inputs) < len(program.streams)
    ):
        return None
    if sum(len(cluster.children) for cluster in clusters) != len(clusters) - 1:
        return None  # several roots
    programs = local_programs(network, clusters, program.headroom)
    if not all(local.simple and len(local.cluster.inputs) <= 2 and _plain(local) for local in programs):
        return None
    boxes = _boxes(programs, program, steps)
    if boxes is None:
        return None
    flows = _flows(program, programs, boxes)
    order = [clusters[0].inputs.index(name) for name in program.streams]
    axes = [boxes[0].axes[i] for i in order]
    if order == [1, 0]:
        shape = (len(boxes[0].axes[0]), len(boxes[0].axes[1]))
        flows = flows.reshape(program.size, *shape).swapaxes(1, 2).reshape(program.size, -1)
    return PlanTable(axes, np.ascontiguousarray(flows.T), program.objective)


def _plain(local: LocalProgram) -> bool:
    """Whether branches inside lead out of the cluster only: to children or to outputs."""
    program = local.program
    return all(
        arc.consumer in program.network.outputs or arc.producer in program.network.streams for arc in program.variables
    )


def _boxes(programs: Sequence[LocalProgram], program: Program, steps: int) -> list[Box] | None:
    ranges = useful_ranges(programs, offered_most(program))
    boxes: list[Box | None] = [None] * len(programs)
    for index in range(len(programs) - 1, -1, -1):
        below = [boxes[child] for child in programs[index].cluster.children]
        boxes[index] = build_box(programs[index], below, ranges[index], steps)
        if boxes[index] is None:
            return None
    return [found for found in boxes if found is not None]


def _flows(program: Program, programs: Sequence[LocalProgram], boxes: Sequence[Box]) -> Matrix:
    """Flows on the program's arcs (arcs × grid points of the root)."""
    first, second = np.meshgrid(*boxes[0].axes, indexing="ij")
    admitted: list[Matrix] = [np.zeros((2, 0))] * len(programs)
    offered: list[Matrix] = [np.zeros((2, first.size))] * len(programs)
    offered[0] = np.stack([first.ravel(), second.ravel()])
    for index, local in enumerate(programs):
        admitted[index] = np.stack(respond(boxes[index], (offered[index][0], offered[index][1])))
        emitted = local.gains @ admitted[index][: len(local.cluster.inputs)]
        for child, exits in zip(local.cluster.children, local.exits, strict=True):
            offered[child] = np.zeros((2, first.size))
            offered[child][: len(exits)] = emitted[list(exits)]
    _cut_back(programs, admitted)
    place = {arc: i for i, arc in enumerate(program.variables)}
    flows = np.zeros((program.size, first.size))
    for index, local in enumerate(programs):
        inputs = local.cluster.inputs
        for arc in local.program.variables:
            if arc.producer in inputs and arc in place:
                flows[place[arc]] = admitted[index][inputs.index(arc.producer)]
        for row, output in enumerate(local.program.network.outputs.values()):
            arc = Arc(output.source, output.name)
            if arc in place:
                flows[place[arc]] = local.gains[row] @ admitted[index][: len(inputs)]
    return flows


def _cut_back(programs: Sequence[LocalProgram], admitted: list[Matrix]) -> None:
    """Lower what each node admits to what its outputs and children really take, from the leaves up."""
    for index in range(len(programs) - 1, -1, -1):
        local = programs[index]
        own = len(local.gains) - sum(len(rows) for rows in local.exits)
        ends = np.asarray((local.gains[:own] > 0).any(axis=0))
        for i in range(len(local.cluster.inputs)):
            if ends[i]:
                continue
            taken = np.zeros(admitted[index].shape[1])
            for child, exits in zip(local.cluster.children, local.exits, strict=True):
                for place, row in enumerate(exits):
                    if local.gains[row, i] > 0:
                        taken = np.maximum(taken, admitted[child][place] / local.gains[row, i])
            admitted[index][i] = np.minimum(admitted[index][i], taken)
