"""Tuples through each operator of a running node, and its selectivities, from the places where tuples are counted.

A node counts exactly where it drops and where it delivers: at its sources, on the branches of its splits and at its
sinks. Between two such places lies a chain of operators of which only the product of selectivities shows:

    E / I = Π_i s_i          E emitted by the last operator of the chain, I taken in by the first

Over many batches (with forgetting, because windows emit later than they take in) the product is moved to what was
counted; operators share the correction by their weight in it: those that can change a count (filters, aggregates,
joins and named functions that are known to) before those that pass on what they get.

>>> from floodway.network.file import parse_network
>>> net = parse_network('''
... version: 1
... streams: {s: {max_rate: 100}}
... nodes: {A: {cpu: 1}}
... operators:
...   parse: {node: A, from: s, cost: 1e-3}
...   only: {node: A, from: parse, kind: filter, cost: 1e-3, selectivity: 0.5}
... outputs: {q: {from: only}}
... ''')
>>> tuples_through(net, {"s": 1000}, {}, ["parse", "only"])
{'parse': 1000.0, 'only': 1000.0}
>>> refiner = SelectivityRefiner(net)
>>> refiner.observe({"s": 1000}, {"only": 200}, ["parse", "only"])
>>> refiner.selectivities()["only"]
0.2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from floodway.network.model import Arc, Network, OperatorKind

_CHANGES_COUNT = frozenset({OperatorKind.FILTER, OperatorKind.AGGREGATE, OperatorKind.JOIN})
_LEAST_TUPLES = 100.0


def tuples_through(
    network: Network, entered: Mapping[str, float], emitted: Mapping[str, float], inside: Iterable[str]
) -> dict[str, float]:
    """Tuples that entered each operator of `inside` in a batch.

    `entered` counts what was kept at a stream or on an arc `producer->consumer`; `emitted` what an operator is known
    to have emitted (offered to its branches, or delivered). What neither tells follows from the network's
    selectivities.
    """
    members = set(inside)
    made: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name in network.order:
        if name not in members:
            continue
        operator = network.operators[name]
        arrived = {p: entered.get(str(Arc(p, name)), entered.get(p, made.get(p, 0.0))) for p in operator.inputs}
        counts[name] = float(sum(arrived.values()))
        expected = sum(network.contribution(operator, p) * count for p, count in arrived.items())
        made[name] = emitted.get(name, expected)
    return counts


class SelectivityRefiner:
    """Selectivities of a running node's operators; joins keep theirs, being relative to a cross product."""

    def __init__(self, network: Network, *, forgetting: float = 0.98) -> None:
        self._network = network
        self._forgetting = forgetting
        self._sums: dict[tuple[str, ...], tuple[float, float]] = {}

    def observe(self, entered: Mapping[str, float], emitted: Mapping[str, float], inside: Iterable[str]) -> None:
        """Learn from one batch; arguments as for `tuples_through`."""
        members = set(inside)
        counts = tuples_through(self._network, entered, emitted, members)
        for last, out in emitted.items():
            chain = self._chain(last, entered, emitted, members)
            if chain:
                taken, given = self._sums.get(chain, (0.0, 0.0))
                keep = self._forgetting
                self._sums[chain] = (keep * taken + counts[chain[0]], keep * given + out)

    def selectivities(self) -> dict[str, float]:
        """Selectivity of every operator as known now; where nothing was counted, the network's own."""
        operators = self._network.operators.values()
        known = {op.name: 1.0 if op.selectivity is None else op.selectivity for op in operators}
        for chain, (taken, given) in self._sums.items():
            if taken < _LEAST_TUPLES:
                continue
            product = 1.0
            for name in chain:
                product *= known[name]
            sharing = [name for name in chain if self._changes_count(name)] or list(chain)
            observed = given / taken
            if observed <= 0.0 or product <= 0.0:
                # No ratio to share out: the last that can change a count is taken to be the cause.
                known[sharing[-1]] = observed
                continue
            for name in sharing:
                known[name] *= (observed / product) ** (1.0 / len(sharing))
        return known

    def _chain(
        self, last: str, entered: Mapping[str, float], emitted: Mapping[str, float], members: set[str]
    ) -> tuple[str, ...]:
        """The operators between `last` and the nearest place upstream that counts, first to last; () if they merge."""
        chain: list[str] = []
        name = last
        while name in members:
            operator = self._network.operators[name]
            if len(operator.inputs) != 1:
                return ()
            chain.insert(0, name)
            producer = operator.inputs[0]
            if producer in entered or str(Arc(producer, name)) in entered or producer in emitted:
                return tuple(chain)
            name = producer
        return ()

    def _changes_count(self, name: str) -> bool:
        operator = self._network.operators[name]
        return operator.kind in _CHANGES_COUNT or operator.selectivity != 1.0
