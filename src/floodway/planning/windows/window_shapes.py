"""Which drops of a network are Window Drops, and by which windows: those above an aggregate ("Staying FIT", section 2).

Windows of aggregates in a row are joined by `pipelined`, those of aggregates side by side by `fan_out`. Where windows
cannot be dropped whole, the drop is random and the reason says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from floodway.network.flow import flows
from floodway.network.model import Network, Operator, OperatorKind
from floodway.planning.plan import Plan
from floodway.planning.windows.window_drop import WindowShape, fan_out
from floodway.planning.windows.window_keeps import pipelined, window_ppm
from floodway.units import PPM

MOST_OVERLAP = 1000
"""Windows that a tuple may lie in: more of them would make every drop a search."""


@dataclass(frozen=True, slots=True)
class DropKind:
    """How a location drops: by windows of a shape, or tuple by tuple; then `reason` says why, "" without aggregates."""

    shape: WindowShape | None = None
    reason: str = ""


class _RandomError(Exception):
    """Windows cannot be dropped whole here, for the reason in the message."""


def drop_kind(network: Network, consumers: Iterable[str]) -> DropKind:
    """How to drop before these consumers (operators or outputs): by what lies below them."""
    try:
        found = _leaving(network, consumers)
        if not found:
            return DropKind()
        shape = reduce(lambda one, other: fan_out([one, other]), found[1:], found[0])
    except _RandomError as reason:
        return DropKind(reason=str(reason))
    if shape.overlap > MOST_OVERLAP:
        return DropKind(reason=f"a tuple is in {shape.overlap} windows, more than {MOST_OVERLAP}")
    return DropKind(shape)


def location_consumers(network: Network, location: str) -> tuple[str, ...]:
    """Who reads what is left at a drop location: all readers of a stream, or the one of a branch."""
    if location in network.streams:
        return network.consumers[location]
    return (location.partition("->")[2],)


def aggregated(network: Network, below: Callable[[Iterable[bool]], bool] = any) -> frozenset[str]:
    """The operators at or below which an aggregate lies on some path, or on all of them (`below=all`)."""
    found: set[str] = set()
    for name in reversed(network.order):
        is_aggregate = network.operators[name].kind is OperatorKind.AGGREGATE
        if is_aggregate or below(consumer in found for consumer in network.consumers[name]):
            found.add(name)
    return frozenset(found)


def common_keeps(network: Network, keeps: Mapping[str, float]) -> dict[str, float]:
    """Streams that meet in an aggregate take the least of their keeps: a window that one of them lacks is not whole."""
    found = dict(keeps)
    for streams in merged_streams(network):
        least = min((keeps[name] for name in streams if name in keeps), default=1.0)
        found |= {name: least for name in streams if name in keeps}
    return found


def windowed_plan(network: Network, plan: Plan, shapes: Mapping[str, WindowShape]) -> Plan:
    """A plan as its Window Drops carry it out: the same tuples cost the same, but a smaller share of windows leaves.

    `shapes` are the windows of the drop locations that go by windows.
    """
    dropping = {at: shape for at, shape in shapes.items() if plan.keeps.get(at, 1.0) < 1.0}
    keeps = common_keeps(network, plan.keeps)
    tuples = flows(network, plan.rates, keeps)
    shares = {at: window_ppm(shape, round(keeps[at] * PPM)) / PPM for at, shape in dropping.items()}
    windows = flows(network, plan.rates, {**keeps, **shares})
    below = _with_windows(network)
    throughput = {name: (windows if name in below else tuples).throughput[name] for name in network.outputs}
    score = network.score(throughput)
    return replace(plan, keeps=keeps, load=tuples.load, throughput=throughput, score=score)


def _with_windows(network: Network) -> set[str]:
    """The operators and outputs that get windows, or make them."""
    found: set[str] = set()
    for name in network.order:
        operator = network.operators[name]
        if operator.kind is OperatorKind.AGGREGATE or any(producer in found for producer in operator.inputs):
            found.add(name)
    return found | {name for name, output in network.outputs.items() if output.source in found}


def merged_streams(network: Network) -> list[set[str]]:
    """Groups of streams that meet in some aggregate, directly or through others."""
    above: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in network.streams}
    groups: list[set[str]] = []
    for name in network.order:
        operator = network.operators[name]
        above[name] = frozenset().union(*(above[producer] for producer in operator.inputs))
        if operator.kind is OperatorKind.AGGREGATE and len(above[name]) > 1:
            apart = [group for group in groups if not group & above[name]]
            meeting = [group for group in groups if group & above[name]]
            groups = [*apart, set(above[name]).union(*meeting)]
    return groups


def _leaving(network: Network, consumers: Iterable[str]) -> list[WindowShape]:
    """The windows that leave below the consumers, as they look at the drop."""
    some, always = aggregated(network), aggregated(network, below=all)
    arriving: dict[str, set[WindowShape | None]] = {name: {None} for name in consumers}
    for name in network.order:
        above = arriving.get(name)
        if above is None:
            continue
        operator = network.operators[name]
        if operator.kind is OperatorKind.JOIN and (above != {None} or name in some):
            raise _RandomError(f"operators.{name} joins, and its results have no windows of their own")
        if None in above and len(above) > 1:
            raise _RandomError(f"operators.{name} merges windows with single tuples")
        if operator.kind is OperatorKind.AGGREGATE:
            own = _shape(operator)
            above = {own if shape is None else pipelined(shape, own) for shape in above}
        for consumer in network.consumers[name]:
            # Windows that leave are checked, windows that go on are not: one arc cannot do both.
            if above != {None} and consumer in some and consumer not in always:
                raise _RandomError(f"windows of operators.{name} both leave and continue below operators.{consumer}")
            arriving.setdefault(consumer, set()).update(above)
    leaving = {shape for name in network.outputs for shape in arriving.get(name, ()) if shape is not None}
    return sorted(leaving, key=lambda shape: (shape.slide_us, shape.size_us))


def _shape(operator: Operator) -> WindowShape:
    if operator.window is None:
        raise _RandomError(f"operators.{operator.name} names no window")
    size = round(operator.window * 1e6)
    return WindowShape(size, size if operator.slide is None else round(operator.slide * 1e6))
