"""The network as text: streams, nodes with their operators, outputs, drop locations, and what flows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from floodway.network.fair import FairResult
from floodway.network.flow import Keeps, Rates, max_feasible_rates
from floodway.network.model import Network, Operator, OperatorKind, Output, Stream

_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def columns(rows: Sequence[Sequence[str]], *, indent: int = 2) -> list[str]:
    """Rows as lines with aligned columns.

    >>> columns([("s1", "2 /s"), ("sensor", "1 /s")])
    ['  s1      2 /s', '  sensor  1 /s']
    """
    count = max((len(row) for row in rows), default=0)
    padded = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(len(row[index]) for row in padded) for index in range(count)]
    return [
        (" " * indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in padded
    ]


def number(value: float) -> str:
    """A number short enough for a table.

    >>> number(1 / 3), number(2.0), number(1520.7), number(1234567.0), number(float("inf"))
    ('0.333', '2', '1521', '1.23e+06', 'no limit')
    """
    if math.isinf(value):
        return "no limit"
    plain = abs(value) < 1e6 and (value == int(value) or abs(value) >= 100)
    return f"{value:.0f}" if plain else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """A duration or a cost with the unit that suits it.

    >>> seconds(0.048), seconds(3.0), seconds(None)
    ('48 ms', '3 s', '?')
    """
    if value is None:
        return "?"
    for size, unit in _STEPS:
        # 0.2 s reads better than 200 ms in a table of seconds, 48 ms better than 0.048 s.
        if value >= size / 10 or unit == "µs":
            return f"{number(value / size)} {unit}" if value else "0 s"
    return number(value)


def network_text(
    network: Network,
    *,
    rates: Rates | None = None,
    keeps: Keeps | None = None,
    result: FairResult | None = None,
) -> str:
    """Describe a network; with rates and the fair scheduler's result for them, also what flows where."""
    counts = f"{len(network.streams)} streams, {len(network.nodes)} nodes, {len(network.operators)} operators"
    lines = [f"{network.name}: {counts}, {len(network.outputs)} outputs", "", "streams"]
    known = all(op.cost is not None for op in network.operators.values())
    limits = max_feasible_rates(network) if known else {}
    lines += columns([_stream(stream, rates, limits) for stream in network.streams.values()])
    for name in network.nodes:
        lines += ["", _node(network, name, result)]
        local = [op for op in network.operators.values() if op.node == name]
        lines += columns([_operator(op, result) for op in local]) or ["  (no operators)"]
    lines += ["", "outputs", *columns([_output(output, result) for output in network.outputs.values()])]
    if network.links:
        rows = []
        for link in network.links:
            offered = _link(result, link.source, link.target)
            rows.append((f"{link.source}->{link.target}", f"{number(link.bandwidth)} bytes/s", offered))
        lines += ["", "links", *columns(rows)]
    lines += ["", "drop locations", *_drops(network, keeps or {})]
    if result is not None:
        lines += ["", f"score {number(result.score)} under the fair scheduler"]
    return "\n".join(lines)


def _stream(stream: Stream, rates: Rates | None, limits: Rates) -> list[str]:
    row = [stream.name]
    if rates is not None:
        row.append(f"rate {number(rates.get(stream.name, 0.0))} /s")
    row.append("" if stream.max_rate is None else f"max {number(stream.max_rate)} /s")
    if stream.name in limits:
        row.append(f"alone feasible up to {number(limits[stream.name])} /s")
    if stream.deadline is not None:
        row.append(f"deadline {seconds(stream.deadline)}")
    if stream.log is not None:
        row.append(f"log {stream.log}")
    return row


def _node(network: Network, name: str, result: FairResult | None) -> str:
    node = network.nodes[name]
    parts = [f"node {name}: cpu {number(node.cpu)}"]
    if node.memory is not None:
        parts.append(f"memory {number(node.memory)} bytes")
    if result is not None:
        share = result.load[name] / node.cpu
        overload = ", overloaded" if share > 1 + 1e-9 else ""
        parts.append(f"load {number(result.load[name])} ({share:.0%}{overload})")
    return ", ".join(parts)


def _operator(operator: Operator, result: FairResult | None) -> list[str]:
    selectivity = "?" if operator.selectivity is None else number(operator.selectivity)
    row = [
        operator.name,
        operator.kind.value,
        f"from {', '.join(operator.inputs)}",
        f"cost {seconds(operator.cost)}",
        f"selectivity {selectivity}",
    ]
    if operator.windows is not None:
        row.append(f"windows {number(operator.windows[0])} and {number(operator.windows[1])} tuples")
    if operator.kind is OperatorKind.AGGREGATE and operator.window is not None:
        slide = "" if operator.slide is None else f", slide {seconds(operator.slide)}"
        row.append(f"window {seconds(operator.window)}{slide}")
    emitted = {} if result is None else result.node_throughput[operator.node]
    if operator.name in emitted:
        row.append(f"emits {number(emitted[operator.name])} /s")
    return row


def _output(output: Output, result: FairResult | None) -> list[str]:
    row = [output.name, f"from {output.source}", f"weight {number(output.weight)}"]
    if output.tier:
        row.append(f"tier {output.tier}")
    if output.latency is not None:
        quantile = "" if output.quantile is None else f"p{100.0 * output.quantile:g} < "
        row.append(f"latency {quantile}{seconds(output.latency)}")
    if result is not None:
        row.append(f"gets {number(result.throughput[output.name])} /s")
    return row


def _link(result: FairResult | None, source: str, target: str) -> str:
    return "" if result is None else f"offered {number(result.link_load[source, target])} bytes/s"


def _drops(network: Network, keeps: Keeps) -> list[str]:
    places = list(dict.fromkeys([*network.drop_locations, *keeps]))
    return columns([(place, f"keep {keeps[place]:.1%}" if place in keeps else "") for place in places])
