"""The ledger of one query against itself: what an operator got is what the one before it passed on.

Per batch, from the sources down: a source passes on what its last reason kept, a branch what its drop kept. A map,
filter or delay without a function of its own passes on between ⌊s⌋ and ⌈s⌉ tuples for each one (s its selectivity), a
union what its inputs give together; what a user's function, a window or a join makes of its input nobody can tell. So
every place has bounds, which coincide as long as only operators of selectivity 1 lie before it:

    branch: offered within the bounds of its producer, the same on all branches; all kept at keep 1, none at keep 0
    sink:   delivered within the bounds of its arc

What was counted is then taken as exact for the operators behind it. Which tuples a branch kept is decided by their
hashes and is not derived again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from floodway.job.ledger.audit_point import Findings
from floodway.job.ledger.fold import ORDER
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.model import Arc, Network, Operator, OperatorKind
from floodway.planning.windows.window_shapes import drop_kind
from floodway.spark.query.fragments import Fragment, inner_arcs
from floodway.units import PPM

_ONE_BY_ONE = (OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.DELAY, OperatorKind.UNION)


class FlowBounds(NamedTuple):
    """How many tuples there are, at least and at most."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether there is one answer."""
        return self.low == self.high

    def __str__(self) -> str:
        if self.exact:
            return f"{self.low:.0f}"
        return f"{self.low:.0f} to {self.high:.0f}" if math.isfinite(self.high) else f"{self.low:.0f} or more"


UNKNOWN = FlowBounds(0, math.inf)


def check_flow(
    network: Network, fragment: Fragment, lines: Sequence[LedgerLine], found: Findings, known: Sequence[str] = ()
) -> list[str]:
    """Follow every batch of a fragment from its sources to its sinks.

    Returns the branches that were not compared with their inputs; `known` are those of earlier batches.
    """
    batches: dict[int, list[LedgerLine]] = {}
    for line in lines:
        batches.setdefault(line.batch, []).append(line)
    windowed = {
        str(arc)
        for arc in inner_arcs(network, fragment)
        # What lies behind a link is another node's to know: there may be windows.
        if "->" in arc.consumer or drop_kind(network, [arc.consumer]).shape is not None
    }
    flows = [_Flow(network, fragment, mine, windowed) for _, mine in sorted(batches.items())]
    found.differ(text for flow in flows for text in flow.differences())
    loose = dict.fromkeys([*known, *(at for flow in flows for at in flow.loose)])
    found.unchecked += [
        f"{at}: what {at.partition('->')[0]} emits does not follow from what it got, so the branch's tuples were not "
        "compared with its input's"
        for at in loose
    ]
    return list(loose)


class _Flow:
    """One batch."""

    def __init__(
        self, network: Network, fragment: Fragment, lines: Sequence[LedgerLine], windowed: Collection[str]
    ) -> None:
        self._windowed = windowed
        self._network = network
        self._fragment = fragment
        self._place = f"query {lines[0].query}, batch {lines[0].batch}"
        self._shed = {line.at: line for line in lines if line.reason == Reason.SHEDDER}
        self._delivered = {line.at: line for line in lines if line.reason == Reason.DELIVERED}
        self._at_source: dict[str, int] = {}
        for line in lines:
            if line.reason in ORDER:
                self._at_source[line.at] = min(line.kept, self._at_source.get(line.at, line.kept))
        self._emitted: dict[str, FlowBounds] = {}
        self.loose: list[str] = []

    def differences(self) -> Iterator[str]:
        yield from self._heads()
        for name in self._fragment.tail:
            operator = self._network.operators[name]
            inputs = [self._on_arc(Arc(producer, name)) for producer in operator.inputs]
            yield from self._emits(name, passed_on(operator, inputs))
        sinks = {name: Arc(self._network.outputs[name].source, name) for name in self._fragment.outputs}
        sinks.update((str(arc), arc) for arc in self._fragment.cut)
        for sink, arc in sinks.items():
            line, bounds = self._delivered.get(sink), self._on_arc(arc)
            if line is not None and not bounds.low <= line.kept <= bounds.high:
                yield f"{self._place}: {line.kept} tuples were delivered to {sink}, {bounds} came so far"

    def _heads(self) -> Iterator[str]:
        if self._fragment.streaming:
            yield from self._emits(self._fragment.streaming[-1], UNKNOWN)
            return
        for spec in self._fragment.sources:
            kept = self._at_source.get(spec.location or spec.name)
            yield from self._emits(spec.name, UNKNOWN if kept is None else FlowBounds(kept, kept))

    def _emits(self, name: str, bounds: FlowBounds) -> Iterator[str]:
        """Take what a producer emits, and hold its branches against it."""
        self._emitted[name] = bounds
        for consumer in self._network.consumers.get(name, ()):
            line = self._shed.get(str(Arc(name, consumer)))
            if line is None or line.at in self._sources():
                continue
            known = self._emitted[name]
            if not known.low <= line.offered <= known.high:
                yield f"{self._place}: branch {line.at} was offered {line.offered} tuples, {name} emitted {known}"
            if not bounds.exact:
                self.loose.append(line.at)
            # Two sources may have been cut under two decisions, of which the line can name one only.
            # Windows that began under another plan keep their fate.
            alone = len(self._fragment.sources) == 1 and line.at not in self._windowed
            if alone and ((line.keep_ppm == PPM and line.dropped) or (line.keep_ppm == 0 and line.kept)):
                yield f"{self._place}: branch {line.at} kept {line.kept} of {line.offered} at {line.keep_ppm} ppm"
            self._emitted[name] = FlowBounds(line.offered, line.offered)

    def _on_arc(self, arc: Arc) -> FlowBounds:
        line = self._shed.get(str(arc))
        if line is not None and line.at not in self._sources():
            return FlowBounds(line.kept, line.kept)
        return self._emitted.get(arc.producer) or self._emitted.get(str(arc), UNKNOWN)

    def _sources(self) -> Mapping[str, object]:
        return {spec.location or spec.name: spec for spec in self._fragment.sources}


def passed_on(operator: Operator, inputs: Sequence[FlowBounds]) -> FlowBounds:
    """What an operator makes of so many tuples.

    >>> passed_on(Operator("half", "A", ("s",), selectivity=0.5), [FlowBounds(10, 10)])
    FlowBounds(low=0, high=10)
    >>> passed_on(Operator("both", "A", ("s", "t"), OperatorKind.UNION), [FlowBounds(10, 10), FlowBounds(2, 3)])
    FlowBounds(low=12, high=13)
    """
    if operator.run is not None or operator.kind not in _ONE_BY_ONE:
        return UNKNOWN
    selectivity = 1.0 if operator.selectivity is None else operator.selectivity
    low, high = sum(one.low for one in inputs), sum(one.high for one in inputs)
    return FlowBounds(math.floor(selectivity) * low, math.ceil(selectivity) * high if high else 0)
