"""Solver-W: Solver for a known workload, with an expected instead of a maximum error (long paper, section 5.2).

The cell with the largest p·ε (its probability times its error bound) is split first, until Σ p·ε <= threshold. Single
points that are unlikely may be further from their optimum; the expectation over the workload is what is promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from floodway.planning.program import Program
from floodway.planning.solver import SolverPlanner
from floodway.planning.solver_cells import Budget, Cell
from floodway.planning.workload import Exponential, Workload, check_streams


class SolverWPlanner(SolverPlanner):
    """Plans whose expected error under `workload` is at most `epsilon`.

    Without a workload: independent exponential rates with half of every stream's top rate as mean.
    """

    name = "solver-w"
    _workload: Workload | None = None

    def __init__(
        self,
        program: Program,
        epsilon: float = 0.05,
        *,
        workload: Workload | None = None,
        clamp: bool = True,
        adaptive: bool = False,
        budget: Budget | None = None,
        use_map: bool = True,
        mix: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if workload is not None:
            check_streams(workload, program.streams)
        self._workload = workload
        super().__init__(
            program, epsilon, clamp=clamp, adaptive=adaptive, budget=budget, use_map=use_map, mix=mix, clock=clock
        )

    @property
    def workload(self) -> Workload:
        """The workload planned for."""
        if self._workload is None:
            means = self.space.limit.copy()
            means[self.space.dimensions] = self.space.top / 2
            self._workload = Exponential([mean if 0 < mean < float("inf") else 1.0 for mean in means.tolist()])
        return self._workload

    def _priority(self, number: int, cell: Cell) -> float:
        return cell.error * self._probability(number, self.workload) if cell.error > 0 else 0.0

    def _remaining(self, error: float, removed: float, added: list[float], waiting: list[tuple[float, int]]) -> float:
        """The expected error after a split: the children's in place of the parent's."""
        return error - removed + sum(added)

    def _achieved(self, cells: list[Cell]) -> float:
        return self._expected(cells, self.workload)
