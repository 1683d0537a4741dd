"""Where the nodes of a network keep their files when each is a process of its own, below one shared folder.

ROOT/nodes/NODE/                  what is one node's alone: a `Layout` (decision, status, ledger, checkpoints, …)
ROOT/nodes/NODE/agent.json        the process: its id, address and control
ROOT/nodes/NODE/batches.jsonl     figures of its batches
ROOT/nodes/NODE/control/          what its control plane remembers over a restart
ROOT/streams, ROOT/outputs        logs that the network file leaves out, as in `Layout`
ROOT/links/PRODUCER--CONSUMER     the log of a link: written by one node, read by another
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from floodway.network.model import Network
from floodway.network.part import incoming, node_part, outgoing
from floodway.spark.layout import Layout


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The shared folder of a network whose nodes are processes."""

    root: Path

    @property
    def shared(self) -> Layout:
        """Where streams, links and outputs lie."""
        return Layout(self.root)

    def own(self, node: str) -> Layout:
        """What belongs to one node alone."""
        return Layout(self.root / "nodes" / node)

    def agent(self, node: str) -> Path:
        """Who runs the node now."""
        return self.own(node).root / "agent.json"

    def batches(self, node: str) -> Path:
        """Figures of the node's batches."""
        return self.own(node).root / "batches.jsonl"

    def control(self, node: str) -> Path:
        """The control plane's journal of one node."""
        return self.own(node).root / "control"

    def is_used(self) -> bool:
        """Whether nodes have run here, and not a network in one process."""
        return (self.root / "nodes").is_dir()

    def part(self, network: Network, node: str) -> Network:
        """One node's part of the network, with the addresses of all logs that it reads and writes."""
        part = node_part(network, node)
        shared = self.shared
        links_in = {str(arc): str(shared.link(arc)) for arc in incoming(network, node)}
        links_out = {str(arc): str(shared.link(arc)) for arc in outgoing(network, node)}
        return replace(
            part,
            streams={
                name: replace(stream, log=links_in.get(name) or shared.stream(network, name))
                for name, stream in part.streams.items()
            },
            outputs={
                name: replace(output, sink=links_out.get(name) or shared.output(network, name))
                for name, output in part.outputs.items()
            },
        )
