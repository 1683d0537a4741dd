"""Region quadtree: a box of rates halved in every dimension where needed, and its own index.

A cell at level l has sides top/2^l; splitting it gives 2^m children, kept side by side, child number Σ 2^i over the
dimensions i in which it is the upper half. Finding the cell of a point reads one bit of every coordinate per level
(Samet's region quadtree; long paper, section 5.1). Coordinates are integers on the finest grid, so that corners
shared by neighbouring cells are equal, not almost equal.

>>> tree = RegionQuadtree([100.0, 100.0])
>>> tree.split(0)
range(1, 5)
>>> lower, upper = tree.corners(tree.find([60.0, 75.0]))
>>> lower.tolist(), upper.tolist()
([50.0, 50.0], [100.0, 100.0])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DEPTH = 30
"""Levels at most: a cell never gets smaller than a billionth of the box."""
GRID = 1 << DEPTH

Coordinates = tuple[int, ...]
Vector = NDArray[np.float64]


class RegionQuadtree:
    """The tree alone: which cells there are and where; what a cell holds is its user's affair."""

    def __init__(self, top: Sequence[float]) -> None:
        self.top = [float(bound) for bound in top]
        self.dimensions = len(self.top)
        self._first_child: list[int] = [-1]
        self._level: list[int] = [0]
        self._origin: list[Coordinates] = [(0,) * self.dimensions]

    def __len__(self) -> int:
        return len(self._first_child)

    @property
    def children_per_split(self) -> int:
        """2^m."""
        return 1 << self.dimensions

    def splittable(self, cell: int) -> bool:
        """Whether the cell is a leaf above the depth limit."""
        return self._first_child[cell] < 0 and self._level[cell] < DEPTH and self.dimensions > 0

    def is_leaf(self, cell: int) -> bool:
        """Whether the cell has no children."""
        return self._first_child[cell] < 0

    def children(self, cell: int) -> list[tuple[Coordinates, Coordinates]]:
        """Grid corners (lower, upper) that the children of a cell would have; nothing is split yet."""
        origin = self._origin[cell]
        half = GRID >> (self._level[cell] + 1)
        found = []
        for number in range(self.children_per_split):
            lower = tuple(at + half * (number >> i & 1) for i, at in enumerate(origin))
            found.append((lower, tuple(at + half for at in lower)))
        return found

    def split(self, cell: int) -> range:
        """Give a leaf its children and return their numbers, in the order of `children`."""
        first = len(self._first_child)
        for lower, _ in self.children(cell):
            self._first_child.append(-1)
            self._level.append(self._level[cell] + 1)
            self._origin.append(lower)
        self._first_child[cell] = first
        return range(first, len(self._first_child))

    def grid_corners(self, cell: int) -> tuple[Coordinates, Coordinates]:
        """Lower and upper corner on the finest grid."""
        lower = self._origin[cell]
        side = GRID >> self._level[cell]
        return lower, tuple(at + side for at in lower)

    def corners(self, cell: int) -> tuple[Vector, Vector]:
        """Lower and upper corner in tuples/s."""
        lower, upper = self.grid_corners(cell)
        return self.rates(lower), self.rates(upper)

    def rates(self, corner: Coordinates) -> Vector:
        """A grid corner in tuples/s; the last grid line is the top exactly."""
        return np.array([top * (at / GRID) for top, at in zip(self.top, corner, strict=True)])

    def find(self, rates: Sequence[float]) -> int:
        """The leaf that holds these rates; what lies above the box counts as on its top face."""
        places = [
            GRID - 1 if rate >= top else int(rate / top * GRID) for rate, top in zip(rates, self.top, strict=True)
        ]
        first = self._first_child
        cell, bit = 0, GRID >> 1
        while (child := first[cell]) >= 0:
            step = 1
            for place in places:
                if place & bit:
                    child += step
                step += step
            cell = child
            bit >>= 1
        return cell

    def to_array(self) -> NDArray[np.int64]:
        """First child of every cell, -1 for leaves: with the top, all there is to know."""
        return np.array(self._first_child, dtype=np.int64)

    @classmethod
    def from_array(cls, top: Sequence[float], first_child: NDArray[np.int64]) -> RegionQuadtree:
        """The tree again, by splitting in the order in which the cells were numbered; ValueError if it is none."""
        tree = cls(top)
        wanted = first_child.tolist()
        parents = sorted((first, cell) for cell, first in enumerate(wanted) if first >= 0)
        for first, cell in parents:
            if first != len(tree) or cell >= first or not tree.splittable(cell) or len(tree) > len(wanted):
                raise ValueError("the cells do not form a quadtree")
            tree.split(cell)
        if len(tree) != len(wanted):
            raise ValueError("the cells do not form a quadtree")
        return tree
