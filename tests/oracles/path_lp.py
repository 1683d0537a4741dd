"""The optimum by another road: fractions on path prefixes, as the long paper prints them in (1)-(11).

One variable in [0, 1] for every path prefix from a stream (the paper's x1, A = x1·x2, …), rates as
coefficients, solved by scipy; nothing is shared with `floodway.planning`. After a merge the paths through
either input stay apart, which is the same optimum, because only their sum is constrained and valued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.network.flow import fixed_memory, memory_factor
from floodway.network.model import Arc, Network

linprog: Any = import_module("scipy.optimize").linprog
Vector = NDArray[np.float64]


@dataclass
class PathProgram:
    """max score·y over 0 <= y <= 1 with rows·y <= bounds; one throughput row an output."""

    score: Vector
    rows: NDArray[np.float64]
    bounds: Vector
    throughput: dict[str, Vector]


def path_program(network: Network, rates: Mapping[str, float], headroom: float = 1.0) -> PathProgram:
    """All prefixes of all paths, with what they cost and bring at these rates."""
    parents: list[int] = []
    arcs: list[Arc] = []
    flow: list[float] = []

    def walk(producer: str, parent: int, rate: float) -> None:
        for consumer in network.consumers[producer]:
            index = len(parents)
            parents.append(parent)
            arcs.append(Arc(producer, consumer))
            flow.append(rate)
            if consumer in network.operators:
                walk(consumer, index, rate * network.contribution(network.operators[consumer], producer))

    for stream in network.streams:
        walk(stream, -1, rates[stream])
    size = len(parents)
    rows: list[Vector] = []
    bounds: list[float] = []
    for index, parent in enumerate(parents):
        if parent >= 0:
            row = np.zeros(size)
            row[index], row[parent] = 1.0, -1.0
            rows.append(row)
            bounds.append(0.0)
    for use, capacity in _resources(network, arcs):
        rows.append(use * np.array(flow))
        bounds.append(capacity * headroom)
    throughput = {
        name: np.array([rate if arc.consumer == name else 0.0 for arc, rate in zip(arcs, flow, strict=True)])
        for name in network.outputs
    }
    score = sum((network.outputs[name].weight * row for name, row in throughput.items()), np.zeros(size))
    return PathProgram(score, np.array(rows).reshape(len(rows), size), np.array(bounds), throughput)


def _resources(network: Network, arcs: list[Arc]) -> list[tuple[Vector, float]]:
    found = []
    for node in network.nodes.values():
        here = [
            network.operators[arc.consumer]
            if arc.consumer in network.operators and network.operators[arc.consumer].node == node.name
            else None
            for arc in arcs
        ]
        found.append((np.array([(op.cost or 0.0) if op else 0.0 for op in here]), node.cpu))
        if node.memory is not None:
            held = [memory_factor(network, arc) if op else 0.0 for arc, op in zip(arcs, here, strict=True)]
            found.append((np.array(held), node.memory - fixed_memory(network, node.name)))
    for link in network.links:
        crossing = [
            network.tuple_bytes(arc.producer)
            if arc.producer in network.operators
            and arc.consumer in network.operators
            and (network.operators[arc.producer].node, network.operators[arc.consumer].node)
            == (link.source, link.target)
            else 0.0
            for arc in arcs
        ]
        found.append((np.array(crossing), link.bandwidth))
    return found


def optimum(network: Network, rates: Mapping[str, float], headroom: float = 1.0) -> float:
    """The best weighted throughput."""
    program = path_program(network, rates, headroom)
    return _maximum(program.score, program.rows, program.bounds)


def fair_levels(network: Network, rates: Mapping[str, float]) -> dict[str, float]:
    """Lexicographic max-min throughput/weight per output, testing for each whether it can rise alone."""
    program = path_program(network, rates)
    weights = {q: out.weight for q, out in network.outputs.items() if out.weight > 0}
    goals = {q: program.throughput[q] / weight for q, weight in weights.items()}
    size = len(program.score)
    fixed: dict[str, float] = {}
    while len(fixed) < len(goals):
        free = [q for q in goals if q not in fixed]
        rows = [np.append(row, 0.0) for row in program.rows]
        rows += [np.append(-goals[q], 1.0) for q in free]
        rows += [np.append(-goals[q], 0.0) for q in fixed]
        floors = [-level * (1 - 1e-9) for level in fixed.values()]
        bounds = np.concatenate([program.bounds, np.zeros(len(free)), floors])
        level = _maximum(np.append(np.zeros(size), 1.0), np.array(rows), bounds, level_last=True)
        held = [-goals[q] for q in goals]
        least = [-(fixed.get(q, level)) * (1 - 1e-9) for q in goals]
        stuck = [
            q
            for q in free
            if _maximum(goals[q], np.vstack([program.rows, *held]), np.concatenate([program.bounds, least]))
            <= level * (1 + 1e-6) + 1e-9
        ]
        fixed.update((q, level) for q in stuck)
    return fixed


def tier_scores(network: Network, rates: Mapping[str, float]) -> list[float]:
    """Weighted throughput per tier, each as high as the tiers before it leave it."""
    program = path_program(network, rates)
    rows, bounds = program.rows, program.bounds
    scores = []
    for tier in sorted({out.tier for out in network.outputs.values()}):
        members = [out for out in network.outputs.values() if out.tier == tier]
        goal = sum((q.weight * program.throughput[q.name] for q in members), np.zeros(len(program.score)))
        best = _maximum(goal, rows, bounds)
        scores.append(best)
        rows = np.vstack([rows, -goal])
        bounds = np.append(bounds, -best * (1 - 1e-9))
    return scores


def brute_force_optimum(network: Network, rates: Mapping[str, float]) -> float:
    """The best vertex, by solving for every choice of tight constraints: small networks only."""
    program = path_program(network, rates)
    size = len(program.score)
    rows = np.vstack([program.rows, np.eye(size), -np.eye(size)])
    bounds = np.concatenate([program.bounds, np.ones(size), np.zeros(size)])
    best = 0.0
    for chosen in combinations(range(len(rows)), size):
        matrix = rows[list(chosen)]
        if abs(np.linalg.det(matrix)) < 1e-12:
            continue
        vertex = np.linalg.solve(matrix, bounds[list(chosen)])
        if np.all(rows @ vertex <= bounds + 1e-9):
            best = max(best, float(program.score @ vertex))
    return best


def _maximum(goal: Vector, rows: NDArray[np.float64], bounds: Vector, *, level_last: bool = False) -> float:
    """max goal·y; with `level_last` the last variable is a common level, which is no fraction and
    unbounded."""
    fractions = [(0.0, 1.0)] * (len(goal) - level_last)
    limits = [*fractions, (0.0, None)] if level_last else fractions
    found = linprog(-goal, A_ub=rows, b_ub=bounds, bounds=limits, method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)
