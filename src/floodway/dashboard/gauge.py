"""What flows in a network now, and how good that is, from counts over a window: measured, not planned.

    rate(stream) = offered / window         keep(place) = kept / offered         throughput(output) = delivered / window
    score = Σ weight · throughput           optimum = the LP's best for those rates and the capacity that was used

The capacity that was used is what the tuples kept asked for, and what came out beyond what they account for is part of
the optimum: the same definition as in the report of a run (`agent/loop/record.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodway.errors import FloodwayError
from floodway.job.ledger.fold import Counts
from floodway.network.flow import flows
from floodway.network.model import Network

if TYPE_CHECKING:
    from floodway.planning.exact import ExactPlanner


@dataclass(frozen=True, slots=True)
class Flow:
    """Tuples/s on streams, arcs and outputs; keeps in [0, 1]; load as a share of each node's CPU."""

    rates: Mapping[str, float]
    keeps: Mapping[str, float]
    arcs: Mapping[str, float]
    load: Mapping[str, float]
    throughput: Mapping[str, float]
    score: float | None
    optimum: float | None


class Gauge:
    """Flows of one network; its planner remembers the regions it has met, so that a look costs microseconds."""

    def __init__(self, network: Network) -> None:
        from floodway.planning.exact import ExactPlanner  # the extra `planner`, which a shed's report does not need
        from floodway.planning.program import Program

        self.network = network
        try:
            self._planner: ExactPlanner | None = ExactPlanner(Program(network))
        except FloodwayError:  # costs that are still to be measured: flows can be shown, an optimum cannot
            self._planner = None

    def measured(self, counts: Counts, seconds: float) -> Flow:
        """The flow of a window of `seconds` seconds."""
        network = self.network
        rates = {name: counts.offered[name] / seconds for name in network.streams}
        keeps = {at: max(0, counts.kept[at]) / offered for at, offered in counts.offered.items() if offered}
        throughput = {name: counts.delivered[name] / seconds for name in network.outputs}
        score = network.score(throughput)
        return self._flow(rates, keeps, throughput, score)

    def planned(self, rates: Mapping[str, float], keeps: Mapping[str, float]) -> Flow:
        """The flow that rates and keeps would give, where nothing has been measured yet; without score."""
        known = {name: float(rates.get(name, 0.0)) for name in self.network.streams}
        return self._flow(known, dict(keeps), {}, None)

    def _flow(
        self,
        rates: Mapping[str, float],
        keeps: Mapping[str, float],
        throughput: Mapping[str, float],
        score: float | None,
    ) -> Flow:
        network = self.network
        now = flows(network, rates, keeps)
        load = {name: now.load[name] / node.cpu for name, node in network.nodes.items()}
        optimum = None
        if self._planner is not None and score is not None:
            from floodway.planning.exact import best_score

            if any(self._planner.program.capacity_asked(now.arc)):
                optimum = best_score(self._planner, rates, now, throughput)
        return Flow(
            rates=rates,
            keeps=keeps,
            arcs={str(arc): rate for arc, rate in now.arc.items()},
            load=load,
            throughput=throughput or now.throughput,
            score=score,
            optimum=optimum,
        )
