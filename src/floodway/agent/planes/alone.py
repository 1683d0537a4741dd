"""A node that plans for itself only, with its own costs: the papers' uncoordinated shedding (Table 1, plan 2)."""

from __future__ import annotations

import threading

from floodway.agent.planes.dfit.own import UNMEASURED, Measured, as_measured, has_moved
from floodway.network.model import Network
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective, Planner


class AlonePlanning:
    """Keeps a planner of one node's part, and makes another when what was measured has moved by `tolerance`."""

    def __init__(
        self,
        part: Network,
        *,
        planner: str = "exact",
        objective: Objective = Objective.THROUGHPUT,
        headroom: float = 1.0,
        epsilon: float = 0.05,
        tolerance: float = 0.02,
    ) -> None:
        self._part = part
        (self._node,) = part.nodes
        self._name, self._objective = planner, objective
        self._headroom, self._epsilon, self._tolerance = headroom, epsilon, tolerance
        self._measured = UNMEASURED
        self._planner: Planner | None = None
        self._lock = threading.Lock()

    def planner(self, measured: Measured) -> Planner:
        """The planner for these costs."""
        with self._lock:
            operators = self._part.operators.values()
            if self._planner is None or has_moved(operators, self._measured, measured, self._tolerance):
                network = as_measured(self._part, {self._node: measured})
                self._planner = make_planner(
                    network,
                    self._name,
                    objective=self._objective,
                    epsilon=self._epsilon,
                    headroom=self._headroom,
                )
                self._measured = measured
            return self._planner
