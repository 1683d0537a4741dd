"""The table that one node (or cluster) keeps and sends to its parent: NodeTable, and how it is built.

Built from the cluster's own operators and the tables received from its children, nothing else: what D-FIT allows.
Nodes with one or two inputs sample a grid of offers (`axes`), so that their parent can interpolate; with more inputs
a fan of directions at several lengths. Rows are (rates, score) either way, and any mixture of rows can be served.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from floodway.planning.fit.box import Box, axis, box, spread_over
from floodway.planning.fit.hull import HullProgram
from floodway.planning.fit.local import LocalProgram
from floodway.planning.program import Matrix, Vector

DEFAULT_STEPS = 16
_FAN_ROWS = 160
_LENGTHS = (0.5, 0.75, 1.0)
"""Parts of the range, between what needs no drop and what is the most of any use."""


@dataclass(frozen=True)
class NodeTable:
    """Rows (rates, score); with `axes`, one row for every grid point of offers, the last axis running fastest."""

    inputs: tuple[str, ...]
    rates: Matrix
    scores: Vector
    axes: tuple[Vector, ...] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def as_box(self) -> Box | None:
        """The table as a grid of scores, if it is one; responses stay with the node and are not in it."""
        if self.axes is None or len(self.axes) > 2:
            return None
        axes = (self.axes[0], self.axes[1] if len(self.axes) == 2 else np.zeros(1))
        shape = (len(axes[0]), len(axes[1]))
        scores = self.scores.reshape(shape)
        return Box(axes, scores, np.zeros(shape), np.zeros(shape))


def build_table(
    local: LocalProgram, children: Sequence[NodeTable], ranges: Vector, steps: int = DEFAULT_STEPS
) -> NodeTable:
    """The cluster's table over offers up to `ranges`."""
    found = build_box(local, [child.as_box() for child in children], ranges, steps)
    inputs = local.cluster.inputs
    if found is not None:
        return grid_table(inputs, found)
    program = HullProgram(local, children)
    if len(inputs) <= 2:
        axes = tuple(axis(float(top), steps) for top in ranges)
        rates = _grid(axes)
        return NodeTable(inputs, rates, np.array([program.solve(point)[1] for point in rates]), axes)
    offers = fan(local, ranges)
    solved = [program.solve(offer) for offer in offers]
    # Rows hold what was really admitted, which is less than the offer where the node sheds at its own door.
    admitted = np.array([_admitted(local, flows) for flows, _ in solved])
    rates = np.vstack([np.zeros((1, len(inputs))), admitted])
    return NodeTable(inputs, rates, np.array([0.0, *(score for _, score in solved)]))


def grid_table(inputs: tuple[str, ...], found: Box) -> NodeTable:
    """A box without its responses: what is sent."""
    axes = found.axes[: len(inputs)]
    return NodeTable(inputs, _grid(axes), found.scores.ravel(), axes)


def build_box(
    local: LocalProgram, boxes: Sequence[Box | None], ranges: Vector, steps: int = DEFAULT_STEPS
) -> Box | None:
    """Grid table with responses, by array operations alone; None where the cluster or a child is not that simple."""
    inputs = len(local.cluster.inputs)
    if inputs > 2 or not local.simple or any(found is None for found in boxes):
        return None
    tops = [axis(float(top), steps) for top in ranges]
    axes = (tops[0], tops[1] if inputs == 2 else np.zeros(1))
    values = np.append(local.values, 0.0)[:2]
    earned = values[0] * axes[0][:, None] + values[1] * axes[1][None, :]
    for found, exits in zip(boxes, local.exits, strict=True):
        placed = _placed(local, exits)
        if found is None or placed is None:
            return None
        gains, swap = placed
        earned = earned + spread_over(axes, found, gains, swap)
    order = [int(np.flatnonzero(local.program.stream_of == i)[0]) for i in range(inputs)]
    share = np.zeros((len(local.share), 2))
    share[:, :inputs] = local.share[:, order]
    return box(axes, share, earned)


def _placed(local: LocalProgram, exits: Sequence[int]) -> tuple[tuple[float, float], bool] | None:
    """How a child's inputs follow from ours: (child tuples per tuple of our first, second input), and their order."""
    gains = [0.0, 0.0]
    sources = []
    for row in exits:
        source = int(local.gains[row].argmax())
        sources.append(source)
        gains[source] = float(local.gains[row, source])
    if len(set(sources)) < len(sources):
        return None  # one input feeds both: not a product of axes
    return (gains[0], gains[1]), sources[0] == 1


def fan(local: LocalProgram, ranges: Vector) -> Matrix:
    """Offers for tables of more than two inputs: all mixes of K parts, at lengths from "no drop" to the range."""
    inputs = len(ranges)
    parts = 1
    while math.comb(parts + inputs, inputs - 1) <= _FAN_ROWS:
        parts += 1
    cuts = itertools.combinations(range(parts + inputs - 1), inputs - 1)
    mixes = np.array([np.diff([-1, *cut, parts + inputs - 1]) - 1 for cut in cuts]) / parts
    use = local.share @ local.program.full_flow
    most = use.max(axis=0, initial=0.0)
    plain = np.where(most > 0, np.minimum(1.0 / np.where(most > 0, most, 1.0), ranges), ranges)
    offers = [mixes * plain, *(mixes * (length * ranges) for length in _LENGTHS)]
    offers.append(mixes / mixes.max(axis=1, keepdims=True) * ranges)
    return np.unique(np.vstack(offers), axis=0)


def _admitted(local: LocalProgram, flows: Vector) -> Vector:
    stream_of = local.program.stream_of
    return np.array([flows[stream_of == i].max() for i in range(len(local.cluster.inputs))])


def _grid(axes: Sequence[Vector]) -> Matrix:
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij", copy=False)], axis=1)
