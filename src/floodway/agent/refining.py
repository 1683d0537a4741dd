"""Costs that follow the running job: regression over its micro-batches, handed to the planner as proportions.

The level of the costs is the controller's business (it measures what a batch takes); what the planner needs is which
operator is dear and which is cheap. So refined costs are scaled to ask for the same work in all as the declared ones
did for the batches seen: a correction changes the mix that is shed, and leaves the units of work as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodway.network.flow import flows
from floodway.network.model import Arc, Network
from floodway.planning.costs import CostRefiner

REMARKABLE = 0.1
"""Relative change of a cost below which the plan stays as it is."""
EVERY_BATCHES = 10


class Refining:
    """Refines the costs of a network that runs as one query; CPU time is cumulative, as `CpuMeter` gives it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._prior = {name: operator.cost or 0.0 for name, operator in network.operators.items()}
        self._planned = dict(self._prior)
        self._refiner = CostRefiner(self._prior)
        self._cpu: float | None = None
        self._seen = dict.fromkeys(network.operators, 0.0)
        self._batches = 0

    def observe(self, kept: Mapping[str, int], arc_keeps: Mapping[str, float], cpu_seconds: float) -> Network | None:
        """Note a finished batch; the network with corrected costs when they have changed remarkably."""
        before, self._cpu = self._cpu, cpu_seconds
        counts = tuples_per_operator(self._network, kept, arc_keeps)
        if before is None or not any(counts.values()):
            return None
        self._refiner.observe({name: round(count) for name, count in counts.items()}, cpu_seconds - before)
        for name, count in counts.items():
            self._seen[name] += count
        self._batches += 1
        return self._corrected() if self._batches % EVERY_BATCHES == 0 else None

    def costs(self) -> dict[str, float]:
        """CPU-seconds a tuple of every operator, as the batches show it."""
        return dict(self._refiner.costs())

    def _corrected(self) -> Network | None:
        refined = self._refiner.costs()
        asked = sum(self._seen[name] * cost for name, cost in self._prior.items())
        found = sum(self._seen[name] * refined[name] for name in self._prior)
        if asked <= 0 or found <= 0:
            return None
        costs = {name: refined[name] * asked / found for name in self._prior}
        changed = [
            name
            for name, cost in costs.items()
            if self._seen[name] and abs(cost - self._planned[name]) > REMARKABLE * max(self._planned[name], 1e-12)
        ]
        if not changed:
            return None
        self._planned = costs
        operators = {name: replace(op, cost=costs[name]) for name, op in self._network.operators.items()}
        return replace(self._network, operators=operators)


def tuples_per_operator(network: Network, kept: Mapping[str, int], arc_keeps: Mapping[str, float]) -> dict[str, float]:
    """How many tuples reached each operator, from what the streams kept and the drops inside."""
    flow = flows(network, {name: float(kept.get(name, 0)) for name in network.streams}, arc_keeps)
    return {name: sum(flow.arc[Arc(p, name)] for p in op.inputs) for name, op in network.operators.items()}
