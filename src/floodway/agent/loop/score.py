"""How good the mix that a run kept was: its score beside the best that the linear program finds, over the same batches.

    score = Σ weight · delivered / seconds
    optimum = the LP's best for the rates that the same batches were offered, on the CPU that what they kept asked for

Rates taken over other seconds than the score (arrivals instead of what batches took) gave scores of 135% and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodway.agent.loop.record import Record
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program


@dataclass(frozen=True, slots=True)
class Score:
    """Weighted tuples per second, the optimum for the capacity used and for that of the file, and the load by node."""

    score: float
    optimum: float
    nominal_optimum: float
    load: Mapping[str, float]
    capacity_scale: float
    throughput: Mapping[str, float]


def score_of(network: Network, record: Record) -> Score:
    """The score of what was recorded; `capacity_scale` is the load of the busiest node over its nominal CPU."""
    offered, throughput = record.offered_rates(), record.throughput()
    load = flows(network, offered, record.kept_shares()).load
    scale = max(load[name] / node.cpu for name, node in network.nodes.items())
    score = sum(network.outputs[name].weight * rate for name, rate in throughput.items())
    exact = ExactPlanner(Program(network))
    # Where operators pass on more than the file says, the LP's best for the file may be below what was delivered; and
    # what was delivered was possible.
    return Score(
        score=score,
        optimum=max(score, exact.plan(offered, scale or 1.0).score),
        nominal_optimum=exact.plan(offered).score,
        load=load,
        capacity_scale=scale,
        throughput=throughput,
    )
