"""WHAT runs: streams, operators, arcs, nodes, outputs; load and throughput arithmetic; the network file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodway.front import lazy

if TYPE_CHECKING:
    from floodway.network.file import load_network, network_to_yaml, parse_network
    from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream

__all__ = [
    "Network",
    "Node",
    "Operator",
    "OperatorKind",
    "Output",
    "Stream",
    "load_network",
    "network_to_yaml",
    "parse_network",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "floodway.network.file": ("load_network", "network_to_yaml", "parse_network"),
        "floodway.network.model": (
            "Network",
            "Node",
            "Operator",
            "OperatorKind",
            "Output",
            "Stream",
        ),
    },
)
