"""Parts of a job's snapshot, each from what its status, its ledger or its figures tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodway.agent.account import Account, Counts
from floodway.dashboard.figures import Figures
from floodway.dashboard.sources import Reading
from floodway.network.model import Network


def told_counts(reading: Reading) -> Counts:
    """Totals that a status carries itself, where no ledger can be read."""
    counts, status = Counts(), reading.status
    if "offered_total" in status:
        counts.offered[reading.name] = status["offered_total"]
        counts.kept[reading.name] = status["kept_total"]
        if status["dropped_total"]:
            counts.dropped[reading.name, "shedder"] = status["dropped_total"]
    for key, target in (("offered", counts.offered), ("kept", counts.kept), ("delivered", counts.delivered)):
        if isinstance(status.get(key), Mapping):
            target.update(status[key])
    for at, reasons_of in (status.get("dropped") or {}).items() if isinstance(status.get("dropped"), Mapping) else ():
        for reason, count in reasons_of.items():
            counts.dropped[at, reason] = count
    return counts


def ledger(account: Account | None, status: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the ledger adds up: summed here, else as the node tells that sums it; `none` where nobody does."""
    told = status.get("ledger")
    if account is not None:
        lines, differences = account.lines, account.differences()
    elif isinstance(told, Mapping):
        lines, differences = int(told.get("lines", 0)), [str(one) for one in told.get("differences", ())]
    else:
        return {"state": "none", "lines": 0, "differences": []}
    return {"state": "differs" if differences else "reconciled", "lines": lines, "differences": differences}


def keeps(status: Mapping[str, Any]) -> dict[str, float]:
    """Shares to keep as planned, by place; a shed has one place, itself."""
    if status.get("keeps"):
        return dict(status["keeps"])
    return {str(status["name"]): float(status["keep"])} if "keep" in status and "name" in status else {}


def plan(status: Mapping[str, Any]) -> dict[str, Any]:
    """The plan in force: its id, who made it, for what, and whether it had to drop."""
    control = status.get("control")
    kind = control.get("kind") if isinstance(control, Mapping) else None
    return {
        "id": status.get("plan"),
        "planner": status.get("planner") or kind,
        "objective": status.get("objective"),
        "overloaded": status.get("overloaded"),
    }


def reasons(status: Mapping[str, Any]) -> dict[str, str]:
    """What the controllers say, by query."""
    if isinstance(status.get("reasons"), Mapping):
        return dict(status["reasons"])
    return {str(status.get("name", "")): str(status["reason"])} if status.get("reason") else {}


def fragments(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a participant runs, for whom, and the share it keeps of each."""
    kept = status.get("keeps") or {}
    return [
        {"fragment": name, **figures, "keep": kept.get(name, 1.0)}
        for name, figures in (status.get("fragments") or {}).items()
    ]


def flow(figures: Figures | None) -> dict[str, Any] | None:
    """What flows now, for the picture."""
    if figures is None:
        return None
    return {
        "rates": dict(figures.rates),
        "keeps": dict(figures.keeps),
        "arcs": dict(figures.arcs),
        "load": dict(figures.load),
        "throughput": dict(figures.throughput),
    }


def nodes(network: Network | None, figures: Figures | None, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Load of every node: the share of its CPU that what was kept takes, and the load planned, in CPUs.

    A participant tells its own CPU, so its share is known without a network.
    """
    planned = status.get("load") or {}
    if network is None or figures is None:
        cpu = status.get("cpu")
        return [
            {"name": name, "cpu": cpu, "share": load / cpu if cpu else None, "planned": load}
            for name, load in planned.items()
        ]
    return [
        {"name": name, "cpu": node.cpu, "share": figures.load[name], "planned": planned.get(name)}
        for name, node in network.nodes.items()
    ]
