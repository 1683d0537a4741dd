"""Tables of nodes with one or two inputs whose load the input rates alone settle: a few array operations a node.

V(a, b) is the best score of the node and all below it when offered (x_a, y_b). With H(x, y) what own outputs earn
plus what the children earn when offered all that is emitted (children shed for themselves),

    V(a, b) = max H(x, y)   over x <= x_a, y <= y_b, use·(x, y) <= 1

H is interpolated between grid points, so its maximum along the boundary lies where the boundary crosses a grid line:
all crossings are tried at once, and a running maximum over the grid gives V for every offer. Because the boundary is
met exactly and not at the next grid point below, the error does not pile up with the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.program import FEASIBILITY_TOLERANCE, Matrix, Vector

Indices = NDArray[np.int64]
_POWER = 1.5
"""Grid points at range·(j/K)^1.5: closer together where rates are small and relative errors large."""


def axis(top: float, steps: int) -> Vector:
    """Grid points from 0 to `top`."""
    return top * (np.arange(steps + 1) / steps) ** _POWER


@dataclass(frozen=True)
class Box:
    """Scores V on the product of two axes, and the rates admitted (`first`, `second`) at every grid point.

    One input is a box whose second axis is the single point 0.
    """

    axes: tuple[Vector, Vector]
    scores: Matrix
    first: Matrix
    second: Matrix


def box(axes: tuple[Vector, Vector], share: Matrix, earned: Matrix) -> Box:
    """V and the best response on the grid; `earned` is H there, `share` (resources × 2) the use of each input."""
    x, y = axes
    y_most = _most(share[:, 0], share[:, 1], x)
    x_most = _most(share[:, 1], share[:, 0], y)
    along_y = _at(y, earned, y_most)
    along_x = _at(x, earned.T, x_most)
    by_row = np.where(y[None, :] <= y_most[:, None], earned, along_y[:, None])
    by_column = np.where(x[:, None] <= x_most[None, :], earned, along_x[None, :])
    row_best, row_at = _running(by_row)
    column_best, column_at = (part.T for part in _running(by_column.T))
    columns = np.arange(len(y))[None, :]
    rows = np.arange(len(x))[:, None]
    upright = row_best >= column_best
    first = np.where(upright, x[row_at], np.minimum(x_most[column_at], x[rows]))
    second = np.where(upright, np.minimum(y_most[row_at], y[columns]), y[column_at])
    return Box(axes, np.where(upright, row_best, column_best), first, second)


def spread_over(axes: tuple[Vector, Vector], found: Box, gains: tuple[float, float], swap: bool) -> Matrix:
    """A child's scores at the grid of its parent, interpolated.

    `gains` are child tuples per parent tuple of the parent's (first, second) input; `swap` if the child's first input
    comes from the parent's second.
    """
    scores = found.scores.T if swap else found.scores
    own = (found.axes[1], found.axes[0]) if swap else found.axes
    for dimension in (0, 1):
        wanted = np.minimum(axes[dimension] * gains[dimension], own[dimension][-1])
        if len(wanted) == len(own[dimension]) and np.abs(wanted - own[dimension]).max() <= 1e-12 * wanted[-1]:
            continue  # the same grid: nothing to interpolate
        at, part = _place(own[dimension], wanted)
        if dimension == 0:
            scores = scores[at] * (1 - part)[:, None] + scores[at + (part > 0)] * part[:, None]
        else:
            scores = scores[:, at] * (1 - part) + scores[:, at + (part > 0)] * part
    return np.asarray(scores)


def respond(found: Box, offered: Sequence[Vector]) -> tuple[Vector, Vector]:
    """Rates admitted at any offers, mixed between grid points; never more than offered."""
    i, s = _place(found.axes[0], np.minimum(offered[0], found.axes[0][-1]))
    j, t = _place(found.axes[1], np.minimum(offered[1], found.axes[1][-1]))
    up, right = i + (s > 0), j + (t > 0)
    corners = ((i, j, (1 - s) * (1 - t)), (up, j, s * (1 - t)), (i, right, (1 - s) * t), (up, right, s * t))
    first, second = np.zeros(len(i)), np.zeros(len(i))
    for a, b, weight in corners:
        first += found.first[a, b] * weight
        second += found.second[a, b] * weight
    return first, second


def _most(own: Vector, other: Vector, along: Vector) -> Vector:
    """How much of the other input fits beside `along` of this one; negative where this one alone is too much."""
    room = 1.0 + FEASIBILITY_TOLERANCE - own[:, None] * along
    if other.all():
        most = room / other[:, None]
    else:
        safe = np.where(other > 0, other, 1.0)[:, None]
        most = np.where(other[:, None] > 0, room / safe, np.where(room >= 0, np.inf, -1.0))
    return most[0] if len(most) == 1 else np.asarray(most.min(axis=0, initial=np.inf))


def _at(points: Vector, lines: Matrix, wanted: Vector) -> Vector:
    """Each line's value at its own point, interpolated; minus infinity where the point is negative."""
    at, part = _place(points, np.minimum(np.maximum(wanted, 0.0), points[-1]))
    rows = np.arange(len(lines))
    value = lines[rows, at] * (1 - part) + lines[rows, at + (part > 0)] * part
    return np.where(wanted < 0, -np.inf, value)


def _place(points: Vector, wanted: Vector) -> tuple[Indices, Vector]:
    """The grid point at or below each value and the part of the way to the next."""
    if len(points) == 1:
        return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(points, wanted, side="right") - 1, len(points) - 2)
    part = (wanted - points[at]) / (points[at + 1] - points[at])
    return at, np.minimum(part, 1.0)


def _running(values: Matrix) -> tuple[Matrix, Indices]:
    """Running maximum down the rows and the row it comes from."""
    best = np.maximum.accumulate(values, axis=0)
    fresh = np.ones(values.shape, dtype=bool)
    fresh[1:] = values[1:] > best[:-1]
    row = np.where(fresh, np.arange(len(values))[:, None], 0)
    return best, np.maximum.accumulate(row, axis=0)
