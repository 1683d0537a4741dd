"""One node's own part of a network, as a network of its own: what an agent runs and plans for.

Arcs that enter the node from another become streams and arcs that leave it become outputs, both named as the arc
`producer->consumer`, so that what one part puts out is what the next part reads. Streams of the whole network keep
their names; one that several nodes read is a stream of each of them.

    whole:  s1 ─► a1 (A) ─► b1 (B) ─► q1
    A's:    s1 ─► a1 ─► output a1->b1           B's:  stream a1->b1 ─► b1 ─► q1

An output that stands for a link weighs 1: what uncoordinated nodes maximise is what they pass on (long paper, Table
1, plan 2). Bandwidth of links is not in a part; D-FIT and the coordinator plan for it, a node alone cannot.
"""

from __future__ import annotations

from dataclasses import replace

from floodway.errors import InputError, suggestion
from floodway.network.flow import Keeps
from floodway.network.model import Arc, Network, Output, Stream


def node_part(network: Network, node: str) -> Network:
    """The part of the network that runs on one node.

    >>> from floodway.network.model import Node, Operator
    >>> whole = Network("two", {"s": Stream("s", 2.0)}, {"A": Node("A"), "B": Node("B")},
    ...                 {"a": Operator("a", "A", ("s",), cost=1.0), "b": Operator("b", "B", ("a",), cost=3.0)},
    ...                 {"q": Output("q", "b")})
    >>> list(node_part(whole, "A").outputs), list(node_part(whole, "B").streams)
    (['a->b'], ['a->b'])
    """
    own = {name: op for name, op in network.operators.items() if op.node == node}
    if not own:
        used = dict.fromkeys(op.node for op in network.operators.values())
        raise InputError(f"no operator runs on node {node!r} of network {network.name!r}", hint=suggestion(node, used))
    entering = incoming(network, node)
    most = _most_rates(network) if entering else {}
    return Network(
        name=f"{network.name}: {node}",
        streams={
            **{name: stream for name, stream in network.streams.items() if _reads(network, name, node)},
            **{
                str(arc): Stream(str(arc), max_rate=most.get(arc.producer), bytes=network.tuple_bytes(arc.producer))
                for arc in entering
            },
        },
        nodes={node: network.nodes[node]},
        operators={
            name: replace(op, inputs=tuple(str(arc) if (arc := Arc(p, name)) in entering else p for p in op.inputs))
            for name, op in own.items()
        },
        outputs={
            **{name: out for name, out in network.outputs.items() if out.source in own},
            **{str(arc): Output(str(arc), arc.producer) for arc in outgoing(network, node)},
        },
    )


def incoming(network: Network, node: str) -> tuple[Arc, ...]:
    """Arcs from operators of other nodes to operators of this one."""
    own = (op for op in network.operators.values() if op.node == node)
    return tuple(
        Arc(producer, op.name) for op in own for producer in op.inputs if network.node_of(producer) not in (None, node)
    )


def outgoing(network: Network, node: str) -> tuple[Arc, ...]:
    """Arcs from operators of this node to operators of others."""
    own = (op.name for op in network.operators.values() if op.node == node)
    return tuple(
        Arc(name, consumer)
        for name in own
        for consumer in network.consumers[name]
        if network.node_of(consumer) not in (None, node)
    )


def part_keeps(network: Network, part: Network, keeps: Keeps) -> dict[str, float]:
    """What a plan for the whole network (1 where it says nothing) means at the drop locations of one part.

    A branch that leaves the part is called `producer->producer->consumer` there. A stream that is split between nodes
    has its branch's keep included. Links that enter keep everything: their drops were made where they were written.
    """
    found: dict[str, float] = {}
    for at in part.drop_locations:
        if at in network.streams:
            (consumer, *others) = part.consumers[at]
            branch = 1.0 if others else keeps.get(str(Arc(at, consumer)), 1.0)
            found[at] = keeps.get(at, 1.0) * branch
        elif at in part.streams:
            found[at] = 1.0
        else:
            found[at] = keeps.get(whole_location(part, at), 1.0)
    return found


def whole_location(part: Network, at: str) -> str:
    """The name that a drop location of a part has in the whole network: `a1->b1` for the part's `a1->a1->b1`."""
    _, _, consumer = at.partition("->")
    return consumer if "->" in consumer and consumer in part.outputs else at


def _reads(network: Network, stream: str, node: str) -> bool:
    return any(network.node_of(consumer) == node for consumer in network.consumers[stream])


def _most_rates(network: Network) -> dict[str, float]:
    """The most that every producer can emit, nothing dropped; without those below a stream of no maximum rate."""
    most = {name: stream.max_rate for name, stream in network.streams.items() if stream.max_rate is not None}
    for name in network.order:
        operator = network.operators[name]
        if all(producer in most for producer in operator.inputs):
            most[name] = sum(network.contribution(operator, producer) * most[producer] for producer in operator.inputs)
    return most
