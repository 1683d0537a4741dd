"""The exact planner: the LP, with the map of its optimal bases (`regions.py`) in front of it.

A look-up in the map takes a few microseconds; what the map does not hold is solved and remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.network.flow import Flows, surplus
from floodway.planning import plan_file
from floodway.planning.lp import LinearProgram
from floodway.planning.plan import Planner
from floodway.planning.program import Program, Vector
from floodway.planning.regions import Region, RegionMap, region_of, stacked
from floodway.planning.ties import even_flows, tied_locations

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
