"""What one node (or cluster) knows: its own operators, the rates offered to it, and which child reads what it emits.

The local program is that of `program.py` on the cluster's own part of the network, with the cluster's inputs as
streams and an *exit* of weight 0 for every producer that a child reads. Bandwidth of links into the cluster belongs
to it, because it decides what flows on the arcs that enter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from floodway.network.flow import link_of
from floodway.network.model import Arc, Network, Output, Stream
from floodway.planning.fit.cluster import Cluster
from floodway.planning.program import Matrix, Program, Vector


@dataclass(frozen=True)
class LocalProgram:
    """Matrices over the cluster's own free arcs. `exits[c]` are the rows of `throughput` that child c reads."""

    cluster: Cluster
    program: Program
    share: Matrix
    exits: tuple[tuple[int, ...], ...]

    @cached_property
    def gains(self) -> Matrix:
        """Tuples out of every output and exit per tuple offered at every input, nothing dropped."""
        return self.program.throughput @ self.program.full_flow

    @cached_property
    def values(self) -> Vector:
        """Score that own outputs earn per tuple offered at every input, nothing dropped."""
        return np.asarray(self.program.weights @ self.gains)

    @cached_property
    def simple(self) -> bool:
        """Whether the input rates alone settle the load: one arc an input, branches cost nothing, no mixing at exits.

        Then children can be offered all that is emitted, and shed the rest for themselves.
        """
        inner = self.program.stream_of < 0
        if int((~inner).sum()) != len(self.cluster.inputs) or self.share[:, inner].any():
            return False
        gains = self.gains.tolist()
        return all(sum(gain > 0 for gain in gains[row]) <= 1 for rows in self.exits for row in rows)

    @cached_property
    def limits(self) -> Vector:
        """The most of every input that this cluster alone can bring through some arc (infinite where free)."""
        use = self.share.max(axis=0, initial=0.0)
        need = (use[:, None] * self.program.full_flow).T.tolist()
        return np.array([1.0 / min((n for n in row if n > 0), default=0.0) if any(row) else np.inf for row in need])


def local_programs(network: Network, clusters: Sequence[Cluster], headroom: float) -> list[LocalProgram]:
    """The program of every cluster."""
    outputs = _outputs_by_source(network)
    return [_local_program(network, clusters, cluster, headroom, outputs) for cluster in clusters]


def local_program(network: Network, clusters: Sequence[Cluster], index: int, headroom: float) -> LocalProgram:
    """The program of one cluster: what its agent builds for itself."""
    return _local_program(network, clusters, clusters[index], headroom, _outputs_by_source(network))


def _outputs_by_source(network: Network) -> dict[str, list[Output]]:
    outputs: dict[str, list[Output]] = {}
    for out in network.outputs.values():
        outputs.setdefault(out.source, []).append(out)
    return outputs


def _local_program(
    network: Network,
    clusters: Sequence[Cluster],
    cluster: Cluster,
    headroom: float,
    outputs: Mapping[str, Sequence[Output]],
) -> LocalProgram:
    own = [out for name in cluster.operators for out in outputs.get(name, ())]
    exits: list[Output] = []
    rows: list[tuple[int, ...]] = []
    for child in cluster.children:
        first = len(own) + len(exits)
        exits += [Output(f"exit {child} {p}", p, weight=0.0) for p in clusters[child].inputs]
        rows.append(tuple(range(first, first + len(clusters[child].inputs))))
    inside = set(cluster.nodes)
    part = Network(
        name=f"{network.name}: {'+'.join(cluster.nodes)}",
        streams={p: Stream(p, bytes=network.tuple_bytes(p)) for p in cluster.inputs},
        nodes={name: network.nodes[name] for name in cluster.nodes},
        operators={name: network.operators[name] for name in cluster.operators},
        outputs={out.name: out for out in (*own, *exits)},
        links=tuple(link for link in network.links if link.source in inside and link.target in inside),
    )
    program = Program(part, headroom)
    share = program.use / program.capacity[:, None]
    if network.links:
        share = np.vstack([share, _entry_links(network, cluster, program)])
    return LocalProgram(cluster, program, share, tuple(rows))


def _entry_links(network: Network, cluster: Cluster, program: Program) -> Matrix:
    rows = []
    for link in network.links:
        row = np.zeros(program.size)
        for i, arc in enumerate(program.variables):
            if arc.producer in cluster.inputs and link_of(network, arc) == (link.source, link.target):
                row[i] = network.tuple_bytes(arc.producer) / (link.bandwidth * program.headroom)
        if row.any():
            rows.append(row)
    return np.array(rows).reshape(len(rows), program.size)


def offered_most(program: Program) -> dict[str, float]:
    """Rates of the streams to prepare for where nothing limits them: four times what they declare or bring alone."""
    alone = np.where(np.isfinite(program.max_feasible_rates), program.max_feasible_rates, 1.0)
    declared = [stream.max_rate or 0.0 for stream in program.network.streams.values()]
    return dict(zip(program.streams, (4.0 * np.maximum(alone, declared)).tolist(), strict=True))


def useful_ranges(programs: Sequence[LocalProgram], offered: Mapping[str, float]) -> list[Vector]:
    """For every cluster the most of every input that is of any use to it and all below it.

    Ranges go up from the leaves and are then cut down to what parents can deliver, so that in a chain all grids are
    the same grid. `offered` are rates of the streams that stand in where nothing limits an input.
    """
    most = dict(offered)
    unlimited = any(np.isinf(local.limits).any() for local in programs)
    for local in programs if unlimited else ():
        full = local.program.full_flow @ np.array([most[name] for name in local.cluster.inputs])
        for arc, flow in arc_flows(local, full[None]).items():
            most.setdefault(arc.producer, float(flow[0]))
    found: list[Vector] = [np.zeros(0)] * len(programs)
    for index in range(len(programs) - 1, -1, -1):
        local = programs[index]
        below = [found[child] for child in local.cluster.children]
        found[index] = useful_range(local, below, np.array([most.get(name, 0.0) for name in local.cluster.inputs]))
    for index, local in enumerate(programs):
        for child, exits in zip(local.cluster.children, local.exits, strict=True):
            found[child] = np.minimum(found[child], local.gains[list(exits)] @ found[index])
    return found


def useful_range(local: LocalProgram, children: Sequence[Vector], offered: Vector) -> Vector:
    """The most of every input that is of any use to one cluster, given its children's ranges."""
    own = len(local.program.network.outputs) - sum(len(rows) for rows in local.exits)
    gains = local.gains.tolist()
    most_below = [0.0] * len(offered)
    for row in gains[:own]:
        most_below = [math.inf if gain > 0 else most for gain, most in zip(row, most_below, strict=True)]
    for most, exits in zip(children, local.exits, strict=True):
        for rate, row in zip(most.tolist(), exits, strict=True):
            for i, gain in enumerate(gains[row]):
                if gain > 0:
                    most_below[i] = max(most_below[i], rate / gain)
    below = np.array(most_below)
    limits = local.limits
    # With one arc an input nothing gets past its limit; with splits another branch may still have use for more.
    found = np.minimum(limits, below) if local.simple else np.where(np.isfinite(limits), limits, below)
    return np.where(np.isfinite(found) & (found > 0), found, np.maximum(offered, 1e-12))


def arc_flows(local: LocalProgram, flows: Matrix) -> dict[Arc, Vector]:
    """Rates on all of the cluster's own arcs (entering and inside) for rows of flows on its free arcs."""
    program = local.program
    network = program.network
    emitted: dict[str, Vector] = {}
    index = {arc: i for i, arc in enumerate(program.variables)}
    rates: dict[Arc, Vector] = {}
    for name in network.order:
        operator = network.operators[name]
        total = np.zeros(len(flows))
        for producer in operator.inputs:
            arc = Arc(producer, name)
            rates[arc] = flows[:, index[arc]] if arc in index else emitted[producer]
            total = total + network.contribution(operator, producer) * rates[arc]
        emitted[name] = total
    for output in network.outputs.values():
        arc = Arc(output.source, output.name)
        rates[arc] = flows[:, index[arc]] if arc in index else emitted[output.source]
    return rates
