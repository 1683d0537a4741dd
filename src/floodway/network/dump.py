"""A network back to its file: only what differs from the defaults, as one would write it by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import yaml

from floodway.network.fields import MEASURE
from floodway.network.model import Network, Node, Operator, Output, Stream

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
        if item.name == "name" or value == default:
            continue
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
