"""What must hold across a network: names that exist, no cycles, every stream read, every operator of use.

Also the checks of what is given *for* a network: rates, keeps, and costs that must be known before planning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from floodway.errors import NetworkError, Problem, did_you_mean, nearest
from floodway.network.fields import MAX_NAME, ProblemReport, shorten
from floodway.network.model import Link, Network
from floodway.network.yaml_lines import join

_BREAKS_NAMES = {",": "a comma", "=": "an equals sign", "->": "an arrow"}


def check_names(section: str, names: Iterable[str], report: ProblemReport) -> None:
    """Refuse names that could not be told apart in `producer->consumer` and `name=value`."""
    for name in names:
        wrong = [what for part, what in _BREAKS_NAMES.items() if part in name]
        if any(char.isspace() or not char.isprintable() for char in name):
            wrong.append("white space or a control character")
        if not name:
            report.add(section, "a name is empty; give every entry a name", line=report.lines.get(f"{section}."))
        elif len(name) > MAX_NAME:
            report.add(join(section, name), f"the name is longer than {MAX_NAME} characters; shorten it")
        elif wrong:
            message = f"the name {shorten(name)} holds {' and '.join(wrong)}; use letters, digits, - and _"
            report.add(join(section, name), message)


def check_unique(network: Network, report: ProblemReport) -> None:
    """Names are shared by streams, operators and outputs, because arcs refer to all of them."""
    seen: dict[str, str] = {}
    for section, names in (
        ("streams", network.streams),
        ("operators", network.operators),
        ("outputs", network.outputs),
    ):
        for name in names:
            first = seen.setdefault(name, section)
            if first != section:
                line = report.lines.get(join(first, name))
                where = first if line is None else f"{first} in line {line}"
                report.add(join(section, name), f"the name is already used in {where}; rename one of the two")


def check_nodes(network: Network, report: ProblemReport) -> None:
    """Every operator's node exists."""
    unknown: dict[str, list[str]] = {}
    for operator in network.operators.values():
        if operator.node and operator.node not in network.nodes:
            unknown.setdefault(operator.node, []).append(f"operators.{operator.name}.node")
    report.unknown_everywhere("node", unknown, network.nodes)


def check_links(links: Mapping[str, Link], network: Network, report: ProblemReport) -> None:
    """A link, keyed as it is spelled in the file, joins two different nodes that exist, and is given once."""
    seen: dict[tuple[str, str], str] = {}
    for spelling, link in links.items():
        key = f"links.{spelling}"
        first = seen.setdefault((link.source, link.target), spelling)
        if first != spelling:
            report.add(key, f"the same link as {first}; remove one of the two")
        elif link.source == link.target:
            report.add(key, "a link joins two different nodes; within a node nothing is sent")
        for name in dict.fromkeys((link.source, link.target)):
            if name not in network.nodes:
                report.unknown(key, "node", name, network.nodes)


def check_memory(network: Network, report: ProblemReport) -> None:
    """A node's memory holds at least the count windows of its joins, which are there whatever the rates."""
    held: dict[str, float] = {}
    for operator in network.operators.values():
        if operator.windows is not None and len(operator.inputs) == 2:
            sizes = [network.tuple_bytes(p) if _produced(network, p) else 0.0 for p in operator.inputs]
            windows = sum(window * size for window, size in zip(operator.windows, sizes, strict=True))
            held[operator.node] = held.get(operator.node, 0.0) + windows
    for name, node in network.nodes.items():
        if node.memory is not None and node.memory < held.get(name, 0.0):
            message = (
                f"{node.memory:g} bytes cannot hold the join windows of this node, {held[name]:g} bytes; "
                "raise the memory, shorten the windows or move a join"
            )
            report.add(f"nodes.{name}.memory", message)


def _produced(network: Network, name: str) -> bool:
    return name in network.streams or name in network.operators


def check_graph(network: Network, report: ProblemReport) -> None:
    """References, cycles and paths, each mistake told once.

    An unknown name with one likely meaning counts as that meaning in the checks that follow, so that a typing error
    does not also make a stream that nobody reads.
    """
    producers = {**network.streams, **network.operators}
    read: set[str] = set()
    reads: dict[str, list[str]] = {}
    fed = set(network.streams)
    unknown: dict[str, list[str]] = {}

    def resolve(key: str, name: str) -> str | None:
        if name in producers:
            return name
        if name in network.outputs:
            report.add(key, f"{shorten(name)} is an output, which nothing can read; read its operator instead")
            return network.outputs[name].source or None
        unknown.setdefault(name, []).append(key)
        return None

    for operator in network.operators.values():
        key = f"operators.{operator.name}.from"
        targets = [resolve(key, name) for name in operator.inputs]
        read.update(target for target in targets if target is not None)
        reads[operator.name] = [name for name in operator.inputs if name in network.operators]
        if len(reads[operator.name]) < len(operator.inputs) or not operator.inputs:
            # It reads a stream, or its inputs are wrong and reported: then what follows is not blamed.
            fed.add(operator.name)
    sources: dict[str, str | None] = {}
    for output in network.outputs.values():
        if output.source:
            sources[output.name] = resolve(f"outputs.{output.name}.from", output.source)
    read.update(source for source in sources.values() if source is not None)
    report.unknown_everywhere("stream or operator", unknown, producers)
    for name in unknown if not report.full else ():
        guesses = nearest(name, producers)
        read.update(guesses if len(guesses) == 1 else ())

    cyclic = _check_cycles(reads, report)
    # An entry that does not say what it reads may be the reader that is missed.
    if all(op.inputs for op in network.operators.values()) and len(sources) == len(network.outputs):
        _report_unread(network, read, cyclic, report)
    _report_unfed(network, reads, fed, sources, report)


def _report_unread(network: Network, read: set[str], cyclic: set[str], report: ProblemReport) -> None:
    for name in network.streams:
        if name not in read:
            report.add(f"streams.{name}", "nobody reads this stream; read it in an operator or remove it")
    for name in network.operators:
        if name not in read and name not in cyclic:
            message = "no path to an output: nobody reads this operator; add an output from it or remove it"
            report.add(f"operators.{name}", message)


def _report_unfed(
    network: Network,
    reads: Mapping[str, list[str]],
    fed: set[str],
    sources: Mapping[str, str | None],
    report: ProblemReport,
) -> None:
    """An output whose operators read only each other gets nothing from any stream."""
    readers: dict[str, list[str]] = {}
    for name, producers in reads.items():
        for producer in producers:
            readers.setdefault(producer, []).append(name)
    stack = list(fed)
    while stack:
        for reader in readers.get(stack.pop(), ()):
            if reader not in fed:
                fed.add(reader)
                stack.append(reader)
    for name, source in sources.items():
        if source is not None and source in network.operators and source not in fed:
            message = f"no path from any stream: {source} only reads operators of a cycle; let one read a stream"
            report.add(f"outputs.{name}.from", message)


def _check_cycles(reads: Mapping[str, list[str]], report: ProblemReport) -> set[str]:
    """Report one cycle at a time until none is left; the operators found in cycles come back."""
    cyclic: set[str] = set()
    done: set[str] = set()
    for start in reads:
        trail: list[str] = []
        place: dict[str, int] = {}
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                place.pop(trail.pop())
                done.add(name)
            elif name in place:
                cycle = trail[place[name] :][::-1]
                if not cyclic.intersection(cycle):
                    loop = " -> ".join([cycle[-1], *cycle])
                    message = f"the operators {loop} form a cycle; let one of them read something else"
                    report.add(f"operators.{cycle[-1]}.from", message)
                cyclic.update(cycle)
            elif name not in done:
                place[name] = len(trail)
                trail.append(name)
                stack.append((name, True))
                stack += [(producer, False) for producer in reads.get(name, ())]
    return cyclic


def require_costs(network: Network) -> None:
    """Raise if an operator's cost or selectivity is still to be measured."""
    problems = [
        Problem(f"operators.{op.name}.{key}", None, f"{key} is not known; give it or run `floodway measure`")
        for op in network.operators.values()
        for key, value in (("cost", op.cost), ("selectivity", op.selectivity))
        if value is None
    ]
    if problems:
        raise NetworkError(problems, source=network.name)


def check_rates(network: Network, rates: Mapping[str, float], *, all_streams: bool = True) -> None:
    """Raise unless `rates` gives every stream (or some, if not `all_streams`) a finite rate of at least 0."""
    problems = _check_values("rates", rates, network.streams, "stream", lambda rate: 0 <= rate < math.inf)
    missing = [name for name in network.streams if name not in rates]
    if missing and all_streams:
        example = ",".join(f"{name}=1" for name in network.streams)
        text = f"no rate for {', '.join(missing)}; give every stream a rate in tuples/s, such as {example}"
        problems.append(Problem("rates", None, text))
    if problems:
        raise NetworkError(problems, source="rates")


def check_keeps(network: Network, keeps: Mapping[str, float]) -> None:
    """Raise unless every keep is in [0, 1] and stands at a stream or at an arc `producer->consumer`."""
    places = [*network.streams, *(str(arc) for arc in network.arcs)]
    problems = _check_values("keeps", keeps, places, "drop location", lambda keep: 0 <= keep <= 1)
    if problems:
        raise NetworkError(problems, source="keeps")


def _check_values(
    key: str, given: Mapping[str, float], known: Iterable[str], what: str, good: Callable[[float], bool]
) -> list[Problem]:
    names = dict.fromkeys(known)
    bound = "from 0 to 1" if key == "keeps" else "of at least 0 and finite"
    problems = []
    for name, value in given.items():
        if name not in names:
            message = f"unknown {what} {shorten(name)}; {did_you_mean(name, names)}"
            problems.append(Problem(f"{key}.{name}", None, message))
        elif not good(value):
            problems.append(Problem(f"{key}.{name}", None, f"must be a number {bound}, not {value:g}"))
    return problems
