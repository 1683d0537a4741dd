"""Fragments of a federation as a network: a chain of stream, operator and output for each, all on one node.

A query runs the network of its own fragment, a member plans with the network of all fragments that it holds. Streams
have the names that ledgers, decisions and offsets use: `FRAGMENT.INPUT`.

>>> spec = FragmentSpec("hits", "A", "count-hits", {"clicks": "logs/clicks"}, "outputs/hits")
>>> network = member_network([spec], Node("A", cpu=2.0), costs={"hits": 0.001}, weights={"hits": 4.0})
>>> [str(arc) for arc in network.arcs], network.drop_locations
(['hits.clicks->hits/count-hits', 'hits/count-hits->hits'], ('hits.clicks',))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from floodway.contracts.federation_file import FragmentSpec
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream


def member_network(
    fragments: Iterable[FragmentSpec],
    node: Node,
    *,
    costs: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    schemas: Mapping[str, str] | None = None,
) -> Network:
    """These fragments on one node, with CPU-seconds per tuple and weights by fragment, and schemas by stream.

    An entry of a catalogue may keep state, so it is an aggregate whatever it does.
    """
    specs = list(fragments)
    streams = {
        stream_name(spec, one): Stream(stream_name(spec, one), log=log, schema=(schemas or {}).get(one))
        for spec in specs
        for one, log in spec.logs.items()
    }
    operators = [
        Operator(
            operator_name(spec),
            node.name,
            tuple(stream_name(spec, one) for one in spec.logs),
            OperatorKind.AGGREGATE,
            cost=(costs or {}).get(spec.name, spec.cost),
        )
        for spec in specs
    ]
    outputs = {
        spec.name: Output(spec.name, operator_name(spec), weight=(weights or {}).get(spec.name, 1.0), sink=spec.output)
        for spec in specs
    }
    return Network(node.name, streams, {node.name: node}, {one.name: one for one in operators}, outputs)


def stream_name(fragment: FragmentSpec, one: str) -> str:
    """The name of a fragment's input in ledgers, decisions and offsets."""
    return f"{fragment.name}.{one}"


def operator_name(fragment: FragmentSpec) -> str:
    """The name of a fragment's only operator; no stream or output can have it."""
    return f"{fragment.name}/{fragment.run}"
