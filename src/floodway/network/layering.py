"""Layers of a network's picture: which column and which height each box and each bend of an arrow gets.

Streams stand left, outputs right, nodes in ranks between them by who feeds whom, operators in columns within their
node by who reads whom. An arrow that passes a column gets a bend there, a place of its own, so that it runs round the
boxes and not through them (the layering of Sugiyama, Tagawa and Toda, with nodes as blocks). Orders are improved by
sweeps of barycentres; heights then relax towards straight arrows, each block within the room that its order leaves
it. Units are points.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from statistics import fmean

from floodway.network.flow import link_of
from floodway.network.model import Arc, Network

_SWEEPS = 24
_BEND = 10.0

Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spacing:
    """Room around things: `label` left of boxes for rates, `mark` right of the `marked` for a drop's mark."""

    item: float = 16.0
    block: float = 16.0
    pad: float = 12.0
    header: float = 24.0
    gap: float = 34.0
    label: float = 0.0
    mark: float = 0.0
    port: float = 11.0
    marked: frozenset[str] = frozenset()


@dataclass(slots=True)
class PlacedBox:
    """A box, or a bend of an arrow: its column, the block it belongs to, its centre height and its size."""

    column: int
    block: str
    width: float
    height: float
    y: float = 0.0
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    """What stays together in a rank: a node's group, a lone stream or output, or an arrow's lane."""

    rank: int
    is_group: bool
    columns: dict[int, list[str]] = field(default_factory=dict)
    y: float = 0.0
    height: float = 0.0


class Layers:
    """The picture while it is being arranged."""

    def __init__(self, network: Network, size_of: Callable[[str], Size], spacing: Spacing) -> None:
        self.network = network
        self.spacing = spacing
        self.places: dict[str, PlacedBox] = {}
        self.blocks: dict[str, Block] = {}
        self.chains: dict[Arc, list[str]] = {}
        ranks = _ranks(network)
        inner = _inner_columns(network)
        widths = [1] * (max(ranks.values(), default=0) + 1)
        for name, operator in network.operators.items():
            rank = ranks[operator.node]
            widths[rank] = max(widths[rank], inner[name] + 1)
        starts = [1 + sum(widths[:rank]) for rank in range(len(widths))]
        self.rank_of_column = [0, *(rank + 1 for rank, width in enumerate(widths) for _ in range(width))]
        self.rank_of_column.append(len(widths) + 1)
        last = len(self.rank_of_column) - 1
        for node in network.nodes:
            self.blocks[f"node {node}"] = Block(ranks[node] + 1, True)
        for name in network.streams:
            self._put(name, 0, name, size_of(name))
        for name in network.order:
            node = network.operators[name].node
            self._put(name, starts[ranks[node]] + inner[name], f"node {node}", size_of(name))
        for name in network.outputs:
            self._put(name, last, name, size_of(name))
        for arc in network.arcs:
            self._chain(arc)
        self.by_rank: list[list[str]] = [[] for _ in range(self.rank_of_column[-1] + 1)]
        for name, block in self.blocks.items():
            block.height = self._block_height(block)
            self.by_rank[block.rank].append(name)

    def _put(self, name: str, column: int, block: str, size: Size) -> None:
        self.places[name] = PlacedBox(column, block, *size)
        if block not in self.blocks:
            self.blocks[block] = Block(self.rank_of_column[column], False)
        self.blocks[block].columns.setdefault(column, []).append(name)

    def _chain(self, arc: Arc) -> None:
        source, target = self.places[arc.producer], self.places[arc.consumer]
        chain = [arc.producer]
        for column in range(source.column + 1, target.column):
            rank = self.rank_of_column[column]
            block = f"lane {arc} {rank}"
            for end in (source, target):
                if self.rank_of_column[end.column] == rank and self.blocks[end.block].is_group:
                    block = end.block
            bend = f"bend {arc} {column}"
            self._put(bend, column, block, (0.0, _BEND))
            chain.append(bend)
        chain.append(arc.consumer)
        self.chains[arc] = chain
        for left, right in itertools.pairwise(chain):
            self.places[left].after.append(right)
            self.places[right].before.append(left)

    def _block_height(self, block: Block) -> float:
        heights = [self._stack_height(names) for names in block.columns.values()]
        inside = max(heights, default=20.0)
        return inside + 2 * self.spacing.pad + self.spacing.header if block.is_group else inside

    def _stack_height(self, names: list[str]) -> float:
        return sum(self.places[name].height for name in names) + self.spacing.item * (len(names) - 1)

    def order(self) -> None:
        """Sort blocks in ranks and places in columns so that few arrows cross."""
        self._stack()
        best, fewest = self._snapshot(), self._crossings()
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            for rank in self.by_rank if forward else reversed(self.by_rank):
                rank.sort(key=lambda name: self._barycentre(self.members(name), forward))
                for name in rank:
                    columns = self.blocks[name].columns
                    for column in sorted(columns, reverse=not forward):
                        columns[column].sort(key=lambda place: self._barycentre([place], forward))
                        self._stack_rank(rank)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = self._snapshot(), crossings
        self._restore(best)
        self._stack()

    def members(self, block: str) -> list[str]:
        """Everything in a block, boxes and bends."""
        return [name for names in self.blocks[block].columns.values() for name in names]

    def _barycentre(self, names: Iterable[str], forward: bool) -> float:
        own = list(names)
        inside = set(own)
        found = []
        for name in own:
            place = self.places[name]
            neighbours = place.before if forward else place.after
            found += [self.places[other].y for other in neighbours if other not in inside]
        return fmean(found) if found else fmean([self.places[name].y for name in own] or [0.0])

    def _snapshot(self) -> tuple[list[list[str]], dict[str, dict[int, list[str]]]]:
        columns = {
            name: {column: list(names) for column, names in block.columns.items()}
            for name, block in self.blocks.items()
        }
        return [list(rank) for rank in self.by_rank], columns

    def _restore(self, saved: tuple[list[list[str]], dict[str, dict[int, list[str]]]]) -> None:
        self.by_rank = saved[0]
        for name, columns in saved[1].items():
            self.blocks[name].columns = columns

    def _crossings(self) -> int:
        spans: dict[int, list[tuple[float, float]]] = {}
        for place in self.places.values():
            spans.setdefault(place.column, []).extend((place.y, self.places[n].y) for n in place.after)
        return sum(
            (a[0] - b[0]) * (a[1] - b[1]) < 0
            for pairs in spans.values()
            for index, a in enumerate(pairs)
            for b in pairs[:index]
        )

    def _stack(self) -> None:
        for rank in self.by_rank:
            self._stack_rank(rank)

    def _stack_rank(self, rank: list[str]) -> None:
        """Pile up blocks and their places with no gaps but the least, centred on height 0."""
        total = sum(self.blocks[name].height for name in rank) + self.spacing.block * (len(rank) - 1)
        top = -total / 2
        for name in rank:
            block = self.blocks[name]
            block.y = top + block.height / 2
            middle = block.y + (self.spacing.header / 2 if block.is_group else 0.0)
            for names in block.columns.values():
                at = middle - self._stack_height(names) / 2
                for place in (self.places[each] for each in names):
                    place.y = at + place.height / 2
                    at += place.height + self.spacing.item
            top += block.height + self.spacing.block

    def relax(self) -> None:
        """Move blocks, then places within them, towards their neighbours, keeping order and distance."""
        for sweep in range(2 * _SWEEPS):
            for rank in self.by_rank if sweep % 2 == 0 else reversed(self.by_rank):
                wishes = [self.blocks[name].y + self._pull(name) for name in rank]
                sizes = [self.blocks[name].height for name in rank]
                for name, y in zip(rank, spread(wishes, sizes, self.spacing.block), strict=True):
                    self._shift(name, y - self.blocks[name].y)
                for name in rank:
                    self._relax_block(self.blocks[name])

    def _pull(self, block: str) -> float:
        own = set(self.members(block))
        pulls = [
            self.places[other].y - self.places[name].y
            for name in own
            for other in (*self.places[name].before, *self.places[name].after)
            if other not in own
        ]
        return fmean(pulls) if pulls else 0.0

    def _shift(self, name: str, by: float) -> None:
        self.blocks[name].y += by
        for member in self.members(name):
            self.places[member].y += by

    def _relax_block(self, block: Block) -> None:
        if not block.is_group:
            return
        top = block.y - block.height / 2 + self.spacing.header + self.spacing.pad
        bottom = block.y + block.height / 2 - self.spacing.pad
        for names in block.columns.values():
            wishes = []
            for place in (self.places[name] for name in names):
                near = [self.places[other].y for other in (*place.before, *place.after)]
                wishes.append(fmean(near) if near else place.y)
            sizes = [self.places[name].height for name in names]
            heights = spread(wishes, sizes, self.spacing.item, low=top, high=bottom)
            for name, y in zip(names, heights, strict=True):
                self.places[name].y = y


def spread(
    wishes: Sequence[float],
    sizes: Sequence[float],
    gap: float,
    *,
    low: float = float("-inf"),
    high: float = float("inf"),
) -> list[float]:
    """Centres nearest to the wishes (least squares) that keep order, sizes and gaps, within [low, high].

    With the needed distances taken off, it is isotonic regression: merge neighbours that are out of order.

    >>> spread([0.0, 0.0], [10.0, 10.0], 2.0)
    [-6.0, 6.0]
    """
    offsets: list[float] = []
    for index, size in enumerate(sizes):
        offsets.append(0.0 if not index else offsets[-1] + (sizes[index - 1] + size) / 2 + gap)
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        mean, count = wish - offset, 1
        while pools and pools[-1][0] > mean:
            other, many = pools.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    if flat:
        lowest = low + sizes[0] / 2
        highest = high - sizes[-1] / 2 - offsets[-1]
        flat = [max(min(mean, highest), lowest) for mean in flat]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]


def _ranks(network: Network) -> dict[str, int]:
    """Longest path over nodes; an arc back to an earlier node (nodes may feed each other) does not count."""
    order = list(dict.fromkeys([*(network.operators[name].node for name in network.order), *network.nodes]))
    position = {node: index for index, node in enumerate(order)}
    feeds: dict[str, set[str]] = {node: set() for node in order}
    for arc in network.arcs:
        link = link_of(network, arc)
        if link is not None:
            feeds[link[1]].add(link[0])
    ranks: dict[str, int] = {}
    try:
        order = list(TopologicalSorter(feeds).static_order())
    except CycleError:
        feeds = {node: {o for o in others if position[o] < position[node]} for node, others in feeds.items()}
    for node in order:
        ranks[node] = max((ranks[other] + 1 for other in feeds[node]), default=0)
    return ranks


def _inner_columns(network: Network) -> dict[str, int]:
    inner: dict[str, int] = {}
    for name in network.order:
        node = network.operators[name].node
        local = [inner[p] + 1 for p in network.operators[name].inputs if network.node_of(p) == node]
        inner[name] = max(local, default=0)
    return inner
