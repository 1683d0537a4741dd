"""The region quadtree as an index: against a plain scan, at corners, above the top, written and read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.planning.quadtree import DEPTH, GRID, RegionQuadtree
from tests.effort import tries


def random_tree(seed: int, dimensions: int, splits: int) -> RegionQuadtree:
    generator = np.random.default_rng(seed)
    tree = RegionQuadtree(generator.uniform(0.1, 100, dimensions).tolist())
    for _ in range(splits):
        leaves = [cell for cell in range(len(tree)) if tree.splittable(cell)]
        tree.split(int(generator.choice(leaves)))
    return tree


def scan(tree: RegionQuadtree, rates: list[float]) -> list[int]:
    """All leaves whose closed box holds the point, by looking at every one."""
    point = np.minimum(rates, tree.top)
    found = []
    for cell in range(len(tree)):
        lower, upper = tree.corners(cell)
        if tree.is_leaf(cell) and np.all(lower <= point) and np.all(point <= upper):
            found.append(cell)
    return found


@settings(max_examples=tries(60), deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 25))
def test_find_agrees_with_a_scan(seed: int, dimensions: int, splits: int) -> None:
    tree = random_tree(seed, dimensions, splits)
    generator = np.random.default_rng(seed)
    for _ in range(30):
        part = generator.choice([0.0, 0.25, 0.5, 1.0, 1.5, float(generator.uniform())], dimensions)
        rates = (part * np.array(tree.top)).tolist()
        assert tree.find(rates) in scan(tree, rates)


def test_leaves_tile_the_box() -> None:
    tree = random_tree(3, 3, 20)
    leaves = [tree.corners(cell) for cell in range(len(tree)) if tree.is_leaf(cell)]
    assert sum(np.prod(upper - lower) for lower, upper in leaves) == pytest.approx(np.prod(tree.top))


def test_papers_point_falls_in_the_upper_quarter() -> None:
    tree = RegionQuadtree([100.0, 100.0])
    tree.split(0)
    lower, upper = tree.corners(tree.find([60.0, 75.0]))
    assert lower.tolist() == [50.0, 50.0] and upper.tolist() == [100.0, 100.0]


def test_neighbours_share_corners_exactly() -> None:
    tree = RegionQuadtree([0.1, 0.3])
    first = tree.split(0)
    inner = tree.split(first[0])
    assert tree.grid_corners(inner[3])[1] == tree.grid_corners(first[3])[0]


def test_depth_is_capped() -> None:
    tree = RegionQuadtree([1.0])
    cell = 0
    for _ in range(DEPTH):
        cell = tree.split(cell)[0]
    assert not tree.splittable(cell)
    assert tree.find([0.5 / GRID]) == cell


def test_array_gives_the_same_tree_again() -> None:
    tree = random_tree(5, 2, 30)
    again = RegionQuadtree.from_array(tree.top, tree.to_array())
    assert [again.grid_corners(c) for c in range(len(again))] == [tree.grid_corners(c) for c in range(len(tree))]


@pytest.mark.parametrize("cells", [[], [0], [1, -1], [5, -1, -1], [1, 1, -1], [2, -1, -1, -1]])
def test_arrays_that_are_no_tree_are_refused(cells: list[int]) -> None:
    with pytest.raises(ValueError, match="quadtree"):
        RegionQuadtree.from_array([1.0], np.array(cells, dtype=np.int64))
