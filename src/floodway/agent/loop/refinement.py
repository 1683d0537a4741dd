"""Costs and selectivities that follow the running job: learned from its micro-batches, handed to the planner.

Selectivities come from exact counts at sources, branches and sinks, costs from a regression of CPU time over tuples.
The level of the costs is the controller's business (it measures what a batch takes); what the planner needs is which
operator is dear and which is cheap. So refined costs are scaled to ask for the same work in all as the declared ones
did for the batches seen: a correction changes the mix that is shed, and leaves the units of work as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.model import Network
from floodway.planning.costs import CostRefiner
from floodway.planning.selectivities import SelectivityRefiner, tuples_through

REMARKABLE = 0.1
"""Relative change of a cost or a selectivity below which the plan stays as it is."""
EVERY_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Counted:
    """Tuples of a batch where they are counted: kept at sources and on branches, emitted by operators."""

    entered: Mapping[str, float]
    emitted: Mapping[str, float]

    @classmethod
    def of(cls, network: Network, lines: Iterable[LedgerLine]) -> Counted:
        """From a batch's ledger lines. What a split emits is what its branches were offered, each of them all of it."""
        lines = list(lines)
        entered: dict[str, float] = {}
        emitted: dict[str, float] = {}
        counts = Counts.of(lines)
        for at, offered in counts.offered.items():
            entered[at] = counts.kept[at]
            producer, arrow, _ = at.partition("->")
            if arrow and producer in network.operators:
                emitted[producer] = offered
        for line in lines:
            producer = network.outputs[line.at].source if line.at in network.outputs else line.at.partition("->")[0]
            if line.reason == Reason.DELIVERED and producer in network.operators and not network.is_split(producer):
                emitted[producer] = line.kept
        return cls(entered, emitted)


class Refinement:
    """Refines a network that runs as one query; CPU time is cumulative, as `CpuMeter` gives it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._prior = {name: operator.cost or 0.0 for name, operator in network.operators.items()}
        self._planned = network
        self._costs = CostRefiner(self._prior)
        self._selectivities = SelectivityRefiner(network)
        self._cpu: float | None = None
        self._seen = dict.fromkeys(network.operators, 0.0)
        self._batches = 0

    def observe(self, counted: Counted, cpu_seconds: float) -> Network | None:
        """Note a finished batch; the network as the batches show it when that has changed remarkably."""
        before, self._cpu = self._cpu, cpu_seconds
        operators = self._network.operators
        counts = tuples_through(self._network, counted.entered, counted.emitted, operators)
        if before is None or not any(counts.values()):
            return None
        self._selectivities.observe(counted.entered, counted.emitted, operators)
        self._costs.observe({name: round(count) for name, count in counts.items()}, cpu_seconds - before)
        for name, count in counts.items():
            self._seen[name] += count
        self._batches += 1
        return self._corrected() if self._batches % EVERY_BATCHES == 0 else None

    def costs(self) -> dict[str, float]:
        """CPU-seconds a tuple of every operator, as the batches show it."""
        return dict(self._costs.costs())

    def selectivities(self) -> dict[str, float]:
        """Tuples out per tuple in of every operator, as the batches show it."""
        return self._selectivities.selectivities()

    def _corrected(self) -> Network | None:
        refined = self._costs.costs()
        asked = sum(self._seen[name] * cost for name, cost in self._prior.items())
        found = sum(self._seen[name] * refined[name] for name in self._prior)
        if asked <= 0 or found <= 0:
            return None
        shares = self.selectivities()
        operators = {
            name: replace(operator, cost=refined[name] * asked / found, selectivity=shares[name])
            for name, operator in self._network.operators.items()
        }
        before = self._planned.operators
        if not any(
            self._seen[name]
            and (_differ(now.cost, before[name].cost, 0.0) or _differ(now.selectivity, before[name].selectivity, 1.0))
            for name, now in operators.items()
        ):
            return None
        self._planned = replace(self._network, operators=operators)
        return self._planned


def _differ(now: float | None, before: float | None, default: float) -> bool:
    old = default if before is None else before
    return abs((default if now is None else now) - old) > REMARKABLE * max(old, 1e-12)
