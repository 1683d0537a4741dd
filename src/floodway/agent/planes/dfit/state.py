"""What a D-FIT agent knows: its place in the tree, its children's tables, what it sent and what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from floodway.agent.planes.dfit.own import UNMEASURED, ClusterTable, NodeMeasures
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.wire.messages import NodeStatistics
from floodway.planning.fit.node import NodeTable
from floodway.planning.program import Vector


@dataclass(frozen=True, slots=True)
class DFitSettings:
    """Times in seconds. `tolerance` is the part of a cost, selectivity or scale whose change is not worth a new table.

    `row_tolerance` is the part of a row's score below which the row is not sent again.
    """

    tolerance: float = 0.02
    row_tolerance: float = 1e-4
    retry_seconds: float = 1.0
    beat_seconds: float = 2.0
    report_seconds: float = 0.5
    child_timeout_seconds: float = 10.0
    forget_after_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Role:
    """Which agent this is."""

    topology: ClusterTopology
    node: str
    settings: DFitSettings = field(default_factory=DFitSettings)

    @property
    def cluster(self) -> int:
        """The cluster this node belongs to."""
        return self.topology.cluster_of(self.node)

    @property
    def leader(self) -> str:
        """Who plans for this node: itself, unless it shares a cluster."""
        return self.topology.leader(self.cluster)

    @property
    def leads(self) -> bool:
        """Whether this node plans for its cluster."""
        return self.leader == self.node


@dataclass(frozen=True, eq=False, slots=True)
class Child:
    """What is known of a child: its table, by version; None while it is planned as the file says."""

    leader: str
    table: NodeTable
    useful: Vector
    version: int | None = None
    heard_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """What a node of the cluster has reported last."""

    measured: NodeMeasures = UNMEASURED
    rates: Mapping[str, float] = field(default_factory=dict)
    number: int = -1
    heard_seconds: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class SentTable:
    """A table as the parent holds it once it has the message; `source` tells what it was made from."""

    version: int
    base: int | None
    source: bytes
    body: bytes
    rows: int
    useful: tuple[float, ...]
    table: NodeTable


@dataclass(frozen=True, eq=False)
class DFitState:
    """All that an agent knows. `planned` is what the table in force was made with; `ordered` a member's keeps."""

    own: ClusterTable | None
    children: tuple[Child, ...]
    members: Mapping[str, ClusterMember]
    planned: Mapping[str, NodeMeasures] = field(default_factory=dict)
    stale: bool = False
    reach: Vector | None = None
    pushed: SentTable | None = None
    acked: SentTable | None = None
    push_due_seconds: float = 0.0
    beat_due_seconds: float = 0.0
    above_seconds: float | None = None
    number: int = 0
    ordered: Mapping[str, float] | None = None
    ordered_number: int = -1
    report_due_seconds: float = 0.0


def rates_of(state: DFitState) -> dict[str, Mapping[str, float]]:
    """The last rates of every member."""
    return {node: member.rates for node, member in state.members.items()}


def scales_of(state: DFitState) -> dict[str, float]:
    """The last capacity scale of every member."""
    return {node: member.measured.scale for node, member in state.members.items()}


def stamp(number: int, now_seconds: float) -> int:
    """The next version or number: later than the last, and than any of a life before that was forgotten."""
    return max(number + 1, int(now_seconds * 1e6))


def statistics(
    network: str, sender: str, receiver: str, number: int, rates: Mapping[str, float], measured: NodeMeasures
) -> NodeStatistics:
    """What a node has measured, for whoever plans for it."""
    return NodeStatistics(
        network=network,
        sender=sender,
        receiver=receiver,
        number=number,
        rates=dict(rates),
        costs=dict(measured.costs),
        selectivities=dict(measured.selectivities),
        scale=measured.scale,
        tuple_bytes=dict(measured.tuple_bytes),
        state_bytes=dict(measured.state_bytes),
    )


def measures_of(message: NodeStatistics) -> NodeMeasures:
    """What a node has measured, from its message."""
    sizes = message.tuple_bytes, message.state_bytes
    return NodeMeasures(message.costs, message.selectivities, message.scale, *sizes)
