"""Loss-free overload: how much of what waits the next batches may take, and when nothing waits any more.

Every stream is admitted with the same share of what waits, so that the fullest node has what it can do and no more:

    share = min over nodes of  g ζ / load(demand),   at most 1

g is the part of the nominal capacity ζ that may be planned for. What is left out waits for the batches after that.
The work that waits shrinks by what the fullest node can do beyond what arrives:

    seconds = max over nodes of  load(waiting) / (g ζ - load(rates))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from floodway.network.flow import flows
from floodway.network.model import Network


def admitted_share(network: Network, nodes: Collection[str], demand: Mapping[str, float], scale: float) -> float:
    """The share of the demand (tuples per second) that these nodes can process at `scale` times their capacity."""
    load = flows(network, demand).load
    return min((min(1.0, network.nodes[at].cpu * scale / load[at]) for at in nodes if load[at] > 0.0), default=1.0)


def fitting_rate(network: Network, nodes: Collection[str], stream: str, scale: float) -> float | None:
    """Tuples per second of one stream, alone, that these nodes can process at `scale` times their capacity.

    None: it costs them nothing.
    """
    load = flows(network, {name: float(name == stream) for name in network.streams}).load
    return min((network.nodes[at].cpu * scale / load[at] for at in nodes if load[at] > 0.0), default=None)


def catch_up_seconds(
    network: Network, nodes: Collection[str], waiting: Mapping[str, float], rates: Mapping[str, float], scale: float
) -> float | None:
    """Seconds until what waits (tuples) is processed beside what arrives; None: at these rates it never is."""
    work, arriving = flows(network, waiting).load, flows(network, rates).load
    longest = 0.0
    for at in nodes:
        room = network.nodes[at].cpu * scale - arriving[at]
        if work[at] > 0.0 and room <= 0.0:
            return None
        if work[at] > 0.0:
            longest = max(longest, work[at] / room)
    return longest
