"""Parts of a job's snapshot, each from what its status, its ledger or its figures tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodway.agent.watch.metrics import move_counts
from floodway.agent.watch.statuses import is_participant
from floodway.dashboard.figures import Figures
from floodway.job.fold import Counts, Fold
from floodway.network.model import Network


def told_counts(status: Mapping[str, Any], name: str) -> Counts:
    """Totals that the status of a job of this name carries itself, where no ledger can be read."""
    counts = Counts()
    if "offered_total" in status:
        counts.offered[name] = status["offered_total"]
        counts.kept[name] = status["kept_total"]
        if status["dropped_total"]:
            counts.dropped[name, "shedder"] = status["dropped_total"]
    for key, target in (("offered", counts.offered), ("kept", counts.kept), ("delivered", counts.delivered)):
        if isinstance(status.get(key), Mapping):
            target.update(status[key])
    for at, reasons_of in (status.get("dropped") or {}).items() if isinstance(status.get("dropped"), Mapping) else ():
        for reason, count in reasons_of.items():
            counts.dropped[at, reason] = count
    return counts


def ledger(account: Fold | None, status: Mapping[str, Any]) -> dict[str, Any]:
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


def participant(status: Mapping[str, Any], now: float) -> dict[str, Any] | None:
    """What a participant of a federation has instead of a target and a score; None for other jobs.

    Load in CPU-seconds/s of all that arrives, as a share of its CPU; the share of tuples that it drops; what runs here
    of its own and for others, and what others run for it; where its leases, its moves and its balance stand.
    """
    if not is_participant(status):
        return None
    name, cpu, here = status.get("name"), status.get("cpu"), status.get("fragments") or {}
    load = sum((status.get("load") or {}).values())
    kept, arriving = status.get("keeps") or {}, sum(one.get("rate") or 0.0 for one in here.values())
    dropped = sum((one.get("rate") or 0.0) * (1.0 - kept.get(fragment, 1.0)) for fragment, one in here.items())
    ended, moving = move_counts(status)
    leases = status.get("leases")
    return {
        "load": load,
        "cpu": cpu,
        "share": load / cpu if cpu else None,
        "loss": dropped / arriving if arriving > 0 else 0.0,
        "own": [fragment for fragment, one in here.items() if one.get("for", name) == name],
        "borrowed": {fragment: one["for"] for fragment, one in here.items() if one.get("for", name) != name},
        "lent": dict(status.get("lent") or {}),
        "offer": status.get("offer"),
        "moving": moving,
        "moved": ended,
        "balance": status.get("balance"),
        "leases": None if leases is None else len(leases),
        "lease_seconds": min(leases.values()) - now if leases else None,
        "troubles": _troubles(status),
    }


def _troubles(status: Mapping[str, Any]) -> list[str]:
    """What an operator of a participant has to know, as sentences."""
    return [
        *(f"{fragment} is held and does not run: {why}" for fragment, why in (status.get("stalled") or {}).items()),
        *(f"{partner} does not answer ({times:g} times)" for partner, times in (status.get("cut_off") or {}).items()),
        *(
            f"{fragment} is not served in full by {one.get('by')}: it keeps {one.get('keep', 1.0):.0%}, "
            f"results take {one.get('delay_seconds') or 0.0:.1f} s"
            for fragment, one in (status.get("missed") or {}).items()
        ),
        *(f"{where}: {why}" for where, why in (status.get("failures") or {}).items()),
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
