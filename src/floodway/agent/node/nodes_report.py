"""One report over the nodes of a network: what each kept and dropped, links reconciled, latency and score end to end.

Accounts come from the nodes' ledgers; rates, latency and score from the figures of their batches
(`job/status/batches.py`), so that a restarted process leaves no hole but its own absence.

The optimum is the linear program's best for what the measured batches were offered and for the CPU that each node
turned out to have, and what was delivered beyond what the tuples kept in them account for (`network/flow.py`):

    capacity of a node = Σ work kept / Σ seconds of its batches        (nominal CPU-seconds a second)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import Ledger
from floodway.job.status.batches import Batch, BatchReader, Latency, Sketch
from floodway.json_text import plain_fields
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner, best_score
from floodway.planning.program import Program
from floodway.spark.audit.nodes import LinkAccount, audit_nodes
from floodway.spark.query.layout import NodeLayout


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One node: its counts by place and reason, its capacity and load as shares of the nominal CPU, restarts."""

    counts: Counts
    capacity: float
    load: float
    batches: int
    restarts: int

    def to_dict(self) -> dict[str, Any]:
        """As in the `--json` output."""
        return {**self.counts.to_dict(), **plain_fields(self, "counts")}


@dataclass(frozen=True, slots=True)
class NodesReport:
    """All figures of a network whose nodes ran as processes; times in seconds, rates in tuples/s."""

    control: str
    nodes: Mapping[str, NodeFigures]
    links: tuple[LinkAccount, ...]
    differences: tuple[str, ...]
    latency: Latency
    score: float
    optimum: float
    nominal_optimum: float
    throughput: Mapping[str, float]
    rates: Mapping[str, float]
    measured_seconds: float
    restarts: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway up`: that of `floodway run` with places of all nodes, and the nodes beside."""
        counts = Counts()  # a stream that two nodes read counts for each
        for node in self.nodes.values():
            counts.merge(node.counts)
        return {
            **plain_fields(self, "links"),
            **counts.to_dict(),
            "reconciled": not self.differences,
            "load": {name: node.load for name, node in self.nodes.items()},
            "capacity": {name: node.capacity for name, node in self.nodes.items()},
            "links": {link.link: link.to_dict() for link in self.links},
        }


def report_nodes(
    network: Network,
    layout: NodeLayout,
    *,
    control: str,
    target_seconds: float,
    rates: Mapping[str, float],
    window: tuple[float, float],
    restarts: Mapping[str, int],
) -> NodesReport:
    """The report over all nodes; `window` is the measured part in seconds since 1970, `rates` those that arrived."""
    audited = audit_nodes(network, layout)
    measured = {node: _measured(layout, node, window) for node in audited.nodes}
    spans = {node: _spans(found, window) for node, found in measured.items()}
    throughput = _throughput(network, spans)
    nodes = {node: _node(layout, node, measured[node], restarts.get(node, 0)) for node in measured}
    offered, keeps = _offered(layout, spans, rates)
    kept = flows(network, offered, keeps)
    had = {
        name: replace(node, cpu=node.cpu * (nodes[name].capacity if name in nodes else 1.0) or node.cpu)
        for name, node in network.nodes.items()
    }
    exact = ExactPlanner(Program(replace(network, nodes=had)))
    latencies = Sketch()
    for batch in (batch for found in measured.values() for batch in found):
        latencies.merge(batch.latencies)
    score = network.score(throughput)
    return NodesReport(
        control=control,
        nodes=nodes,
        links=audited.links,
        differences=audited.differences,
        latency=latencies.latency(target_seconds),
        score=score,
        optimum=best_score(exact, offered, kept, throughput, least=1.0),
        nominal_optimum=ExactPlanner(Program(network)).plan(offered).score,
        throughput=throughput,
        rates=dict(rates),
        measured_seconds=window[1] - window[0],
        restarts=dict(restarts),
    )


def _measured(layout: NodeLayout, node: str, window: tuple[float, float]) -> list[Batch]:
    batches = BatchReader(layout.own(node).store).advance() or []
    return [batch for batch in batches if window[0] <= batch.ended_seconds <= window[1]]


def _node(layout: NodeLayout, node: str, measured: Sequence[Batch], restarts: int) -> NodeFigures:
    busy = sum(item.busy_seconds for item in measured)
    work = sum(item.work_seconds for item in measured)
    length = max((item.ended_seconds for item in measured), default=0.0) - min(
        (item.cut_seconds for item in measured), default=0.0
    )
    return NodeFigures(
        counts=Ledger(layout.own(node).store).fold().total,
        capacity=work / busy if busy > 0 else 1.0,
        load=work / length if length > 0 else 0.0,
        batches=sum(item.batches for item in measured),
        restarts=restarts,
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """The batches of a query that count, and the seconds in which they ran.

    From the end of the first measured batch to the end of the last: cut anywhere else, it would hold a part of a batch
    at either end, whose results all come at once.
    """

    batches: Sequence[Batch]
    seconds: float


def _spans(measured: Sequence[Batch], window: tuple[float, float]) -> dict[str, _Span]:
    found = {}
    for query in {item.query for item in measured}:
        mine = sorted((item for item in measured if item.query == query), key=lambda item: item.ended_seconds)
        begin = mine[0].ended_seconds if len(mine) > 1 else window[0]
        found[query] = _Span(mine[1:] or mine, mine[-1].ended_seconds - begin)
    return found


def _throughput(network: Network, spans: Mapping[str, Mapping[str, _Span]]) -> dict[str, float]:
    """Tuples/s delivered to each output."""
    found = dict.fromkeys(network.outputs, 0.0)
    for span in (span for queries in spans.values() for span in queries.values() if span.seconds > 0.0):
        for sink, rows in ((sink, rows) for batch in span.batches for sink, rows in batch.delivered.items()):
            if sink in found:
                found[sink] += rows / span.seconds
    return found


def _offered(
    layout: NodeLayout, spans: Mapping[str, Mapping[str, _Span]], arrived: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Tuples/s that the counted batches were offered of each stream, and the share they kept by place.

    Of a stream that none of them read, what arrived, and no share; of one that several nodes read, what the first was
    offered.
    """
    rates: dict[str, float] = {}
    keeps: dict[str, float] = {}
    for node, queries in spans.items():
        counted = {(query, batch.batch): span for query, span in queries.items() for batch in span.batches}
        lines = [line for line in Ledger(layout.own(node).store).lines() if (line.query, line.batch) in counted]
        for query, span in queries.items():
            counts = Counts.of(line for line in lines if line.query == query)
            for at, offered in counts.offered.items():
                if at in arrived and span.seconds > 0.0:
                    rates.setdefault(at, offered / span.seconds)
                keeps.setdefault(at, max(0, counts.kept[at]) / offered if offered else 1.0)
    return {**arrived, **rates}, {**dict.fromkeys(arrived, 0.0), **keeps}
