"""The network file, version 1: YAML or JSON text in, a `Network` out, or every problem at once.

>>> network = parse_network('''
... version: 1
... streams: {s: {max_rate: 2}}
... nodes: {A: {cpu: 1}}
... operators: {a: {node: A, from: s, cost: 250e-3}}
... outputs: {q: {from: a}}
... ''')
>>> network.operators["a"].cost
0.25
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from floodway.errors import NetworkError, Problem
from floodway.network.fields import MAX_PROBLEMS, MEASURE, Fields, ProblemReport, describe
from floodway.network.file_checks import (
    check_graph,
    check_links,
    check_memory,
    check_names,
    check_nodes,
    check_unique,
)
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.network.sections import read_link, read_node, read_operator, read_output, read_stream
from floodway.network.yaml_lines import WHOLE_FILE, Located, read_lines
from floodway.units import target_text

VERSION = 1
MAX_BYTES = 5_000_000

Entry = TypeVar("Entry")


def load_network(path: Path | str) -> Network:
    """Read a network file; its name is the default name of the network."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _refuse(f"cannot be read: {reason}; check the path", str(path)) from error
    except ValueError as error:
        raise _refuse("cannot be read: the path holds a null character", "network") from error
    return parse_network(_decode(data, str(path)), source=str(path), name=path.stem)


def parse_network(text: str, *, source: str = "network", name: str = "network") -> Network:
    """Read a network from YAML or JSON text; `source` names it in errors, `name` is its default name."""
    if len(text) > MAX_BYTES:
        raise _too_large(source)
    report = ProblemReport()
    root = read_lines(text.removeprefix("\ufeff"), report.problems, source=source)
    if root is None or root.value is None:
        raise _refuse("is empty; start with `version: 1`, then streams, nodes, operators, outputs", source)
    if not isinstance(root.value, dict):
        message = f"must be a mapping with version, streams, nodes, operators, outputs, not {describe(root.value)}"
        raise _refuse(message, source, line=root.line)
    network = _read(root, report, name)
    if report.problems:
        raise NetworkError(_in_order(report), source=source)
    return network


def _decode(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        raise _too_large(source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refuse("is not UTF-8 text; save it as UTF-8", source, line=line) from error


def _too_large(source: str) -> NetworkError:
    return _refuse(f"is larger than {MAX_BYTES // 10**6} MB; split the network or remove what is not needed", source)


def _refuse(message: str, source: str, *, line: int | None = None) -> NetworkError:
    return NetworkError([Problem(WHOLE_FILE, line, message)], source=source)


def _in_order(report: ProblemReport) -> list[Problem]:
    problems = sorted(report.problems[:MAX_PROBLEMS], key=lambda problem: (problem.line is None, problem.line or 0))
    if report.full:
        problems.append(Problem(WHOLE_FILE, None, f"only the first {MAX_PROBLEMS} problems are listed"))
    return problems


def _read(root: Located, report: ProblemReport, default_name: str) -> Network:
    fields = Fields(root, "", report, what="a network file")
    _check_version(fields)
    name = fields.text("name", pattern=r"[^\x00-\x1f]{1,200}", shape="text of at most 200 characters")
    streams = _section(fields, "streams", read_stream)
    nodes = _section(fields, "nodes", read_node)
    operators = _section(fields, "operators", read_operator)
    outputs = _section(fields, "outputs", read_output)
    read_links = _section(fields, "links", read_link, required=False) or {}
    links = {spelling: link for spelling, link in read_links.items() if link is not None}
    fields.finish()
    network = Network(
        name or default_name,
        streams or {},
        nodes or {},
        operators or {},
        outputs or {},
        tuple(links.values()),
    )
    check_unique(network, report)
    # A section that could not be read is reported; names that it would have held are then not called unknown.
    if nodes is not None:
        check_nodes(network, report)
        check_links(links, network, report)
        check_memory(network, report)
    if streams is not None and operators is not None and outputs is not None:
        check_graph(network, report)
    return network


def _check_version(fields: Fields) -> None:
    found = fields.get("version")
    if found is None:
        fields.missing("version", "write `version: 1` first")
    elif isinstance(found.value, bool) or found.value != VERSION:
        fields.fault("version", f"must be {VERSION}, the only version there is, not {describe(found.value)}", found)


def _section(
    fields: Fields, key: str, read: Callable[[str, Located, ProblemReport], Entry], *, required: bool = True
) -> dict[str, Entry] | None:
    """Read every entry of a section; None when there is nothing to read, which is then reported."""
    found = fields.get(key)
    report = fields.report
    if found is None and not required:
        return None
    if found is None or not isinstance(found.value, dict) or (required and not found.value):
        if found is None:
            fields.missing(key, f"write {_EXAMPLES[key]}")
            return None
        given = "is empty"
        if found.value not in (None, {}):
            given = f"must map names to settings, but is {describe(found.value)}"
        report.add(key, f"{given}; write {_EXAMPLES[key]}", line=found.key_line)
        return None
    report.lines.update((f"{key}.{name}", entry.key_line) for name, entry in found.value.items())
    if key != "links":
        check_names(key, found.value, report)
    return {name: read(name, entry, report) for name, entry in found.value.items()}


_EXAMPLES = {
    "streams": "streams: {s1: {max_rate: 2.0}}",
    "nodes": "nodes: {A: {cpu: 1.0}}",
    "operators": "operators: {a1: {node: A, from: s1, cost: 1.0}}",
    "outputs": "outputs: {q1: {from: a1}}",
    "links": "links: {A->B: {bandwidth: 1e6}}",
}


_RENAMED = {"inputs": "from", "source": "from"}


def network_to_dict(network: Network) -> dict[str, Any]:
    """The network as plain values in the order of the file; written out and parsed, it is equal again."""
    body: dict[str, Any] = {
        "version": 1,
        "name": network.name,
        "streams": {name: _settings(stream) for name, stream in network.streams.items()},
        "nodes": {name: {"cpu": node.cpu, **_settings(node)} for name, node in network.nodes.items()},
        "operators": {name: _settings(operator) for name, operator in network.operators.items()},
        "outputs": {name: _settings(output) for name, output in network.outputs.items()},
    }
    if network.links:
        body["links"] = {f"{link.source}->{link.target}": {"bandwidth": link.bandwidth} for link in network.links}
    return body


def network_to_yaml(network: Network) -> str:
    """The network file as YAML."""
    body = network_to_dict(network)
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def network_to_json(network: Network) -> str:
    """The network file as JSON."""
    return json.dumps(network_to_dict(network), indent=2, ensure_ascii=False)


def _settings(entry: Stream | Node | Operator | Output) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in fields(entry):
        value = getattr(entry, item.name)
        default = {} if item.name == "spark" else item.default
        if item.name in ("name", "quantile") or value == default:
            continue
        if isinstance(entry, Output) and item.name == "latency" and entry.quantile is not None:
            value = target_text(value, entry.quantile)
        settings[_RENAMED.get(item.name, item.name)] = _plain(value)
    return settings


def _plain(value: Any) -> Any:
    if value is None:
        # Only a selectivity can be None without that being its default.
        return MEASURE
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, str) else value
