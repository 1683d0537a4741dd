"""Which logs of a run's own folder let old tuples go, and how far: outputs freely, links behind their reader.

A log that the network file names belongs to somebody else and is left alone. So is a link over Kafka: its topic has a
retention of its own. A link in a log lets go only what its reader has committed, because Spark never asks for that
again; what waits stays, however old or large.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.options.options import JobOptions
from floodway.network.model import Network
from floodway.network.part import outgoing
from floodway.spark.log import Retention
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import committed_offsets
from floodway.spark.query.layout import NodeLayout, RunLayout


@dataclass(frozen=True, slots=True)
class LinkReader:
    """Who reads a link: the query's checkpoint, and the link's name in its offsets."""

    checkpoint: Path
    stream: str

    def committed(self) -> Mapping[int, int]:
        """By partition the position up to which it will never read again; nothing if that cannot be told now."""
        with suppress(FloodwayError):
            offset = committed_offsets(self.checkpoint).get(self.stream)
            return {} if offset is None else offset.end
        return {}


@dataclass(frozen=True, slots=True)
class Retaining:
    """What the run's own logs keep: `outputs` by their names, `links` by their arcs, each with its reader."""

    retention: Retention
    outputs: frozenset[str] = frozenset()
    links: Mapping[str, LinkReader] = field(default_factory=dict)

    def of(self, sink: str) -> Retention | None:
        """The retention of one sink's log as of now; None where everything stays."""
        if sink in self.outputs:
            return self.retention
        if sink in self.links:
            return replace(self.retention, unread_from=self.links[sink].committed())
        return None


def retention_of(options: JobOptions) -> Retention | None:
    """How much of the past a job's own logs keep; None where everything stays."""
    if options.retain_bytes is None and options.retain_seconds is None:
        return None
    return Retention(max_bytes=options.retain_bytes, max_age_seconds=options.retain_seconds)


def run_retaining(network: Network, layout: RunLayout, retention: Retention) -> Retaining:
    """The logs of a network that runs in one process."""
    readers = {
        spec.name: LinkReader(layout.checkpoint(fragment), spec.name)
        for node in network.nodes
        for fragment in fragments(network, node)
        for spec in fragment.sources
        if spec.location is None
    }
    return Retaining(retention, _own_outputs(network), readers)


def node_retaining(network: Network, layout: NodeLayout, node: str, retention: Retention) -> Retaining:
    """The logs that one node of a network writes when each is a process of its own."""
    within = run_retaining(layout.part(network, node), layout.own(node), retention)
    return replace(within, outputs=_own_outputs(network), links={**within.links, **_readers(network, layout, node)})


def _own_outputs(network: Network) -> frozenset[str]:
    return frozenset(name for name, output in network.outputs.items() if output.sink is None)


def _readers(network: Network, layout: NodeLayout, node: str) -> dict[str, LinkReader]:
    if layout.links() is not None:
        return {}
    found = {}
    for arc in outgoing(network, node):
        reader = network.operators[arc.consumer].node
        for fragment in fragments(layout.part(network, reader), reader):
            for spec in fragment.sources:
                if spec.producer == str(arc):
                    found[str(arc)] = LinkReader(layout.own(reader).checkpoint(fragment), spec.location or spec.name)
    return found
