"""Where the boxes, groups and arrows of a network's picture go, in points from its upper left corner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from floodway.network.layering import Layers, Size, Spacing
from floodway.network.model import Arc, Network

_TRACK = 12.0
_TURN = 9.0


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Left, top, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Boxes by name, groups by node, each arrow as points: its port, both ends of every bend, its port."""

    width: float
    height: float
    boxes: Mapping[str, Rectangle]
    groups: Mapping[str, Rectangle]
    routes: Mapping[Arc, Sequence[tuple[float, float]]]


def lay_out(network: Network, size_of: Callable[[str], Size], spacing: Spacing) -> PictureLayout:
    """Place every stream, operator and output, given the size that each needs."""
    layers = Layers(network, size_of, spacing)
    layers.order()
    layers.relax()
    return _layout(layers)


def _layout(layers: Layers) -> PictureLayout:
    """Give columns their places, arrows their ports, and move everything to positive heights."""
    lefts, rights, width = _columns(layers)
    top = min(block.y - block.height / 2 for block in layers.blocks.values())
    height = max(block.y + block.height / 2 for block in layers.blocks.values()) - top
    boxes = {}
    for name in (*layers.network.streams, *layers.network.operators, *layers.network.outputs):
        place = layers.places[name]
        # All boxes of a column are as wide as the widest: edges line up.
        left, width_here = lefts[place.column], rights[place.column] - lefts[place.column]
        boxes[name] = Rectangle(left, place.y - place.height / 2 - top, width_here, place.height)
    groups = {}
    for node in layers.network.nodes:
        block = layers.blocks[f"node {node}"]
        columns = [layers.places[name].column for name in layers.members(f"node {node}") if name in boxes]
        first = min(columns, default=layers.rank_of_column.index(block.rank))
        left = lefts[first] - layers.spacing.label - layers.spacing.pad
        right = rights[max(columns, default=first)] + layers.spacing.pad
        groups[node] = Rectangle(left, block.y - block.height / 2 - top, right - left, block.height)
    routes = {}
    for arc in layers.chains:
        route = _route(layers, arc, boxes, lefts, rights, top)
        if _runs_back(layers, arc):
            # Nodes that feed each other: the arrow goes round below everything, each on a track of its own.
            height += _TRACK
            route = _round_below(layers, arc, route, height)
        routes[arc] = route
    return PictureLayout(width, height, boxes, groups, routes)


def _columns(layers: Layers) -> tuple[list[float], list[float], float]:
    widths = [40.0] * len(layers.rank_of_column)
    for place in layers.places.values():
        widths[place.column] = max(widths[place.column], place.width)
    marked = {layers.places[name].column for name in layers.spacing.marked}
    lefts: list[float] = []
    rights: list[float] = []
    x = 0.0
    for column, width in enumerate(widths):
        if column:
            x += layers.spacing.gap + layers.spacing.label + (layers.spacing.mark if column - 1 in marked else 0.0)
            if layers.rank_of_column[column] != layers.rank_of_column[column - 1]:
                x += 2 * layers.spacing.pad
        lefts.append(x)
        x += width
        rights.append(x)
    return lefts, rights, x


def _route(
    layers: Layers,
    arc: Arc,
    boxes: Mapping[str, Rectangle],
    lefts: Sequence[float],
    rights: Sequence[float],
    top: float,
) -> list[tuple[float, float]]:
    chain = layers.chains[arc]
    source, target = boxes[arc.producer], boxes[arc.consumer]
    leaving = _port(layers, arc.producer, chain[1], layers.places[arc.producer].after)
    entering = _port(layers, arc.consumer, chain[-2], layers.places[arc.consumer].before)
    points = [(source.x + source.width, leaving - top)]
    for bend in chain[1:-1]:
        place = layers.places[bend]
        left, right = _span(layers, place.column)
        points += [(lefts[place.column] - left, place.y - top), (rights[place.column] + right, place.y - top)]
    return [*points, (target.x, entering - top)]


def _runs_back(layers: Layers, arc: Arc) -> bool:
    return layers.places[arc.consumer].column <= layers.places[arc.producer].column


def _round_below(layers: Layers, arc: Arc, ends: list[tuple[float, float]], below: float) -> list[tuple[float, float]]:
    (start, leaving), (end, entering) = ends[0], ends[-1]
    right = start + _span(layers, layers.places[arc.producer].column)[1] + _TURN
    left = end - _span(layers, layers.places[arc.consumer].column)[0] - _TURN
    return [
        (start, leaving),
        (right, leaving),
        (right, below),
        (left, below),
        (left, entering),
        (end, entering),
    ]


def _span(layers: Layers, column: int) -> tuple[float, float]:
    """How far a bend reaches beyond its column: past labels, and past the edge of a node beside its lane."""
    ranks = layers.rank_of_column
    first = ranks[column - 1] != ranks[column]
    last = ranks[column + 1] != ranks[column]
    pad = layers.spacing.pad
    return layers.spacing.label + (pad if first else 0.0), pad if last else 0.0


def _port(layers: Layers, name: str, neighbour: str, neighbours: list[str]) -> float:
    """Arrows meet a box side by side, in the order of where they come from."""
    ordered = sorted(neighbours, key=lambda other: layers.places[other].y)
    offset = ordered.index(neighbour) - (len(ordered) - 1) / 2
    return layers.places[name].y + offset * layers.spacing.port
