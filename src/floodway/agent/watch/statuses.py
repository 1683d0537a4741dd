"""Statuses of jobs, of whatever kind, in one form: for the page, for the metrics, and for `floodway top` and `set`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SUMMED = ("offered", "kept", "dropped", "delivered", "ledger")
"""What nodes tell of their ledgers: a stream that two of them read counts for each."""


def normal(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status with the fields of a run's: participants tell their time in seconds and their load as one number.

    >>> normal({"name": "X", "time": 2.0, "load": 0.5, "unreachable": {"Y": 1.0}})
    {'name': 'X', 'load': {'X': 0.5}, 'time_us': 2000000, 'cut_off': {'Y': 1.0}}
    """
    found = dict(status)
    if isinstance(found.get("time"), (int, float)) and "time_us" not in found:
        found["time_us"] = int(found.pop("time") * 1e6)
    if isinstance(found.get("load"), (int, float)):
        found["load"] = {str(found.get("name", "")): found["load"]}
    if isinstance(found.get("unreachable"), Mapping):  # partners that do not answer, not a target
        found["cut_off"] = found.pop("unreachable")
    return found


def merged(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statuses of a network's nodes as one: tables joined, the oldest time, the worst latency, modes that differ told.

    The oldest time, because a network is heard of only if every node of it is.

    >>> merged([{"mode": "off", "load": {"A": 1.0}}, {"mode": "enforce", "load": {"B": 0.5}}])
    {'mode': 'enforce, off', 'load': {'A': 1.0, 'B': 0.5}}
    >>> merged([{"offered": {"s": 3}, "time_us": 5}, {"offered": {"s": 4, "t": 1}, "time_us": 2}])
    {'offered': {'s': 7, 't': 1}, 'time_us': 2}
    """
    if len(statuses) <= 1:
        return dict(statuses[0]) if statuses else {}
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for status in statuses for key in status):
        values = [status[key] for status in statuses if status.get(key) is not None]
        if not values:
            found[key] = None
        elif key == "mode":
            found[key] = ", ".join(sorted(set(values)))
        elif key in SUMMED:
            found[key] = _sum(values)
        elif all(isinstance(value, Mapping) for value in values):
            found[key] = {name: item for value in values for name, item in value.items()}
        elif all(isinstance(value, list) for value in values):
            found[key] = [item for value in values for item in value]
        elif key in ("scale", "loss_floor", "time_us"):
            found[key] = min(values)
        elif all(isinstance(value, bool) for value in values):
            found[key] = any(values)
        elif all(isinstance(value, (int, float)) for value in values):
            found[key] = max(values)
        else:
            found[key] = values[0]
    return found


def _sum(values: Sequence[Any]) -> Any:
    if all(isinstance(value, Mapping) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _sum([value[key] for value in values if key in value]) for key in keys}
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return sum(values)


def is_participant(status: Mapping[str, Any]) -> bool:
    """Whether a status is that of a participant of a federation.

    >>> is_participant({"name": "A", "fragments": {}}), is_participant({"name": "clicks", "mode": "off"})
    (True, False)
    """
    return "fragments" in status and "mode" not in status


def has_mode(status: Mapping[str, Any]) -> bool:
    """Whether the job can be switched: participants cannot, they shed what no partner takes.

    A job that has said nothing yet takes the wish when it starts.
    """
    return not is_participant(status)


def would_drop(status: Mapping[str, Any]) -> float | None:
    """The share of what arrives that enforcing would drop now, by the plan; None where none is told.

        1 - Σ rate · keep / Σ rate        over the streams, in tuples/s; 1 - keep of a shed

    >>> would_drop({"rates": {"a": 300.0, "b": 100.0}, "keeps": {"a": 0.5, "b": 1.0}})
    0.375
    >>> would_drop({"keep": 0.75})
    0.25
    """
    if isinstance(status.get("keep"), (int, float)):
        return 1.0 - float(status["keep"])
    rates, keeps = status.get("rates"), status.get("keeps")
    if not isinstance(rates, Mapping) or not isinstance(keeps, Mapping):
        return None
    offered = sum(float(rate) for rate in rates.values())
    kept = sum(float(rate) * float(keeps.get(name, 1.0)) for name, rate in rates.items())
    return 1.0 - kept / offered if offered > 0 else 0.0
