"""The exact planner: the LP, with the map of its optimal bases in front of it.

A look-up in the map takes a few microseconds; what the map does not hold is solved and remembered.

The map of optimal bases: where each is optimal, and what flows there.

Rates stand only on the right-hand side of the program, so an optimal basis stays optimal wherever it stays feasible,
and there the optimal flows are linear in the rates. Every basis seen is kept as a region

    x(r) = X·[r, 1]        optimal wherever  C·[r, 1] >= 0,   score(r) = s·[r, 1]

By duality each s·[r, 1] is an upper bound on the optimum anywhere, so the region of a point, if known, is the one
with the least bound. See `RegionMap.find`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from floodway.network.flow import Flows, surplus
from floodway.planning import plan_file
from floodway.planning.lp import Basis, LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Matrix, Program, Vector
from floodway.planning.ties import even_flows, tie_groups, tied_locations

TOLERANCE = 1e-9
FEWEST = 8
"""A map with room for fewer regions than this is of no use."""

SMALL_MAP_ROWS = 2048
"""Up to here one product over all rows is quicker than two over a part."""

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Region:
    """One optimal basis. `rows` stacks the checks C (first `checks` rows) on the flows X; `ties` as in `tie_groups`."""

    rows: Matrix
    checks: int
    bound: Vector
    ties: NDArray[np.int64]

    @property
    def tied(self) -> bool:
        """Whether other plans are optimal too."""
        return bool((self.ties >= 0).any())

    def holds(self, rates: Vector) -> bool:
        """Whether the basis is feasible, and so optimal, at these rates."""
        block = self.rows[: self.checks]
        return bool((block[:, :-1] @ rates + block[:, -1] >= -TOLERANCE).all())

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows at rates within the region."""
        block = self.rows[self.checks :]
        return np.asarray(block[:, :-1] @ rates + block[:, -1])


class RegionMap:
    """Regions in arrays that grow by doubling, bounded in memory: when full, the half that was hit least goes."""

    def __init__(self, streams: int, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._width = streams + 1
        self._hits: list[int] = []
        self.last = 0
        self._point: Vector = np.ones(self._width)
        self._reset(16, 256)

    def _reset(self, regions: int, rows: int) -> None:
        self._bounds: Matrix = np.zeros((regions, self._width))
        self._rows: Matrix = np.zeros((rows, self._width))
        self._place: list[tuple[int, int, int]] = []
        """First check, first flow and end of every region's rows."""
        self._ties: list[NDArray[np.int64]] = []
        self._tied: list[bool] = []
        self._cuts = np.zeros(2 * regions, dtype=np.int64)
        """The first two of them, one after the other."""

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, index: int) -> Region:
        start, flows, end = self._place[index]
        return Region(self._rows[start:end], flows - start, self._bounds[index], self._ties[index])

    @property
    def last_is_tied(self) -> bool:
        """Whether the region found last has other optimal plans too."""
        return self._tied[self.last]

    def find(self, rates: Vector, as_keeps: bool = False) -> Vector | None:
        """Flows (or flows over rates) of the region that holds these rates; None if it is not in the map.

        A basis that is feasible is optimal, so whichever region passes all its checks will do. In a small map all
        checks of all regions are one product, and the region with the largest of its least checks is the one to ask.
        """
        point = self._point
        point[:-1] = rates
        if not self._hits:
            return None
        flows = self._flows_of_all(point) if self._place[-1][2] <= SMALL_MAP_ROWS else self._flows_by_bound(point)
        if flows is None:
            return None
        self._hits[self.last] += 1
        if not as_keeps:
            return flows
        return np.clip(np.divide(flows, rates, out=np.ones(len(rates)), where=rates > 0), 0.0, 1.0)

    def _flows_of_all(self, point: Vector) -> Vector | None:
        values: Vector = self._rows[: self._place[-1][2]] @ point
        least = np.minimum.reduceat(values, self._cuts[: 2 * len(self._place)])[::2]
        region = int(least.argmax())
        if least[region] < -TOLERANCE:
            return None
        self.last = region
        _, first_flow, end = self._place[region]
        return values[first_flow:end]

    def _flows_by_bound(self, point: Vector) -> Vector | None:
        bounds = self._bounds[: len(self._hits)] @ point
        for region in np.flatnonzero(bounds <= bounds.min() * (1.0 + TOLERANCE)).tolist():
            start, first_flow, end = self._place[region]
            values: Vector = self._rows[start:end] @ point
            if values[: first_flow - start].min() >= -TOLERANCE:
                self.last = region
                return values[first_flow - start :]
        return None

    def add(self, region: Region) -> None:
        """Remember a region, as far as there is room."""
        room = self._most_bytes // max(region.rows.nbytes + region.bound.nbytes, 1)
        if room < FEWEST:
            return  # A program this large is quicker to solve than to look up.
        if len(self) >= room:
            kept = sorted(np.argsort(self._hits)[len(self) // 2 :].tolist())
            held = [self[i] for i in kept]
            self._hits, self.last = [], 0
            self._reset(16, 256)
            for one in held:
                self._append(one)
        self._append(region)

    def _append(self, region: Region) -> None:
        index = len(self)
        start = self._place[-1][2] if index else 0
        end = start + len(region.rows)
        if index == len(self._bounds):
            self._bounds, self._cuts = _doubled(self._bounds), _doubled(self._cuts)
        while end > len(self._rows):
            self._rows = _doubled(self._rows)
        self._rows[start:end] = region.rows
        self._bounds[index] = region.bound
        self._place.append((start, start + region.checks, end))
        self._cuts[2 * index : 2 * index + 2] = self._place[-1][:2]
        self._ties.append(region.ties)
        self._tied.append(region.tied)
        self._hits.append(0)


def _doubled(array: NDArray[_T]) -> NDArray[_T]:
    return np.concatenate([array, np.zeros_like(array)])


def region_of(lp: LinearProgram, basis: Basis) -> Region | None:
    """The affine solution that a basis stands for; None if its matrix is singular to working precision."""
    program = lp.program
    streams = len(program.streams)
    basic, at_upper = np.flatnonzero(basis.basic), np.flatnonzero(basis.at_upper)
    tight, loose = np.flatnonzero(basis.tight), np.flatnonzero(~basis.tight)
    x: Matrix = np.zeros((program.size, streams + 1))  # scaled flows over [r, 1]
    x[at_upper, program.stream_of[at_upper]] = 1.0 / lp.unit[at_upper]
    right: Matrix = np.zeros((len(lp.bound), streams + 1))
    right[:, -1] = lp.bound
    try:
        x[basic] = np.linalg.solve(lp.matrix[np.ix_(tight, basic)], right[tight] - lp.matrix[tight] @ x)
    except np.linalg.LinAlgError:
        return None
    slack = right[loose] - lp.matrix[loose] @ x
    checks = np.vstack([x[basic], _room_above(lp, x, basic), slack])
    flows = x * lp.unit[:, None]
    return Region(np.vstack([checks, flows]), len(checks), program.objective @ flows, tie_groups(lp, basis))


def _room_above(lp: LinearProgram, x: Matrix, basic: NDArray[np.int64]) -> Matrix:
    """What basic flows out of a stream leave below the stream's rate, over [r, 1]."""
    bounded = basic[lp.program.stream_of[basic] >= 0]
    room = -x[bounded]
    room[np.arange(len(bounded)), lp.program.stream_of[bounded]] += 1.0 / lp.unit[bounded]
    return room


def stacked(regions: Sequence[Region], width: int) -> tuple[Matrix, NDArray[np.int64]]:
    """All rows in one block, and how many of each region are checks: the form in which a map is saved."""
    rows = np.vstack([np.zeros((0, width)), *(region.rows for region in regions)])
    return rows, np.array([region.checks for region in regions], dtype=np.int64)


DEFAULT_MAP_BYTES = 64 * 2**20


def best_score(
    planner: Planner, rates: Mapping[str, float], kept: Flows, delivered: Mapping[str, float], least: float = 0.0
) -> float:
    """The optimum at these rates for as much CPU, bandwidth and memory as the kept flows asked for.

    What was delivered (tuples/s by output) beyond those flows any plan would have had. `least` is the share of the
    nominal capacities that there was at least. The kept flows are one of the plans that the program chooses from, so
    the optimum is at least the weighted sum of what was delivered.
    """
    network = planner.program.network
    cpu, fixed = (max(asked, least) or 1.0 for asked in planner.program.capacity_asked(kept.arc))
    if not planner.program.has_fixed_resources:
        best = planner.plan(rates, cpu).score
    else:
        best = ExactPlanner(planner.program.scaled(fixed=fixed, cpu=cpu)).plan(rates).score
    best += surplus(network, kept, delivered)
    # Where nothing better could be kept the two are one number, which sums in another order round in another way.
    earned = network.score(delivered)
    return earned if isclose(earned, best, rel_tol=1e-9) else best


class ExactPlanner(Planner):
    """Optimal plans; a look-up in the region map takes microseconds, a miss one solve."""

    name = "exact"

    def __init__(self, program: Program, map_bytes: int = DEFAULT_MAP_BYTES) -> None:
        super().__init__(program)
        self._lp = LinearProgram(program)
        self._map = RegionMap(len(program.streams), map_bytes)
        # Without splits a variable is a stream, and keeps are flows over rates with no further arithmetic.
        self._plain = program.size == len(program.streams) == len(program.network.drop_locations)
        self.misses = self.evened = 0

    @property
    def size(self) -> int:
        """Regions in the map."""
        return len(self._map)

    def lookup(self, rates: Vector) -> Vector:
        """Keeps of an optimal plan, of the most even one where several are optimal."""
        known = self._map.find(rates, self._plain)
        if known is None:
            flows, region = self._solve(rates)
            return self.program.keeps(self._even(rates, flows, region), rates)
        if self._map.last_is_tied:
            region = self._map[self._map.last]
            return self.program.keeps(self._even(rates, region.flows(rates), region), rates)
        return known if self._plain else self.program.keeps(known, rates)

    def _even(self, rates: Vector, flows: Vector, region: Region | None) -> Vector:
        if region is None or not region.tied:
            return flows
        self.evened += 1
        return even_flows(self._lp, rates, flows, region.ties >= 0)

    def ties(self, rates: Vector) -> tuple[tuple[str, ...], ...]:
        """Groups of drop locations between which an optimal plan is free to choose."""
        region = self._map[self._map.last] if self._map.find(rates) is not None else self._solve(rates)[1]
        return () if region is None else tied_locations(self.program, region.ties)

    def flows(self, rates: Vector) -> Vector:
        """Optimal flows x (tuples/s) on the free arcs."""
        known = self._map.find(rates)
        return self._solve(rates)[0] if known is None else known

    def tangent(self, rates: Vector) -> tuple[Vector, Vector | None]:
        """Optimal flows, and the s for which s·[r, 1] is the optimum here and above it everywhere else.

        The second is None where no basis could be read off.
        """
        known = self._map.find(rates)
        if known is not None:
            return known, self._map[self._map.last].bound
        flows, solved = self._solve(rates)
        return flows, None if solved is None else solved.bound

    def optimum(self, rates: Vector) -> float:
        """The best weighted throughput at these rates."""
        return self.program.score(self.flows(rates))

    def _solve(self, rates: Vector) -> tuple[Vector, Region | None]:
        self.misses += 1
        solved, basis = self._lp.solve(rates)
        region = region_of(self._lp, basis)
        if region is None:
            return solved, None
        self._map.add(region)
        return region.flows(rates) if region.holds(rates) else solved, region

    def to_arrays(self) -> tuple[plan_file.Meta, plan_file.Arrays]:
        """The region map: the rows of all regions in one block, how many of each are checks, and their ties."""
        regions = [self._map[i] for i in range(self.size)]
        rows, checks = stacked(regions, len(self.program.streams) + 1)
        ties = np.array([region.ties for region in regions], dtype=np.int64).reshape(self.size, self.program.size)
        return {}, {"rows": rows, "checks": checks, "ties": ties}

    @classmethod
    def from_arrays(cls, program: Program, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ExactPlanner:
        """The planner again, with its map as it was; what is not in it is still solved when seen."""
        planner = cls(program)
        checks = plan_file.array(arrays, "checks", (None,)).astype(np.int64)
        rows = plan_file.array(arrays, "rows", (None, len(program.streams) + 1)).astype(np.float64)
        fits = bool((checks > 0).all()) and int(checks.sum()) + len(checks) * program.size == len(rows)
        plan_file.require(fits, "the regions' rows do not add up")
        ties = plan_file.array(arrays, "ties", (len(checks), program.size)).astype(np.int64)
        ends = np.cumsum(checks + program.size)
        for end, count, tied in zip(ends.tolist(), checks.tolist(), ties, strict=True):
            block = np.ascontiguousarray(rows[end - count - program.size : end])
            planner._map.add(Region(block, count, program.objective @ block[count:], tied))
        return planner
