"""What an operator should do next, from the figures of a run: one sentence per finding, the gravest first."""

from __future__ import annotations

from collections.abc import Mapping

from floodway.job.ledger.fold import Counts
from floodway.job.status.status import Status
from floodway.network.flow import flows
from floodway.network.model import Network

LATE = 1.1
POOR = 0.9
BACKLOG = 0.2
FOR_CAPACITY = ("shedder", "share", "adaptor", "cleaner")
"""Reasons that a larger node would do away with."""
WHY = {
    "shedder": "did not fit into the capacity",
    "share": "did not fit, and their keys sent more than their shares",
    "stale": "were older than max_age when their batch began",
    "lag": "were older than the newest that skip_when_lag lets wait",
    "adaptor": "were dropped because the buffer's queue was getting too long",
    "cleaner": "would have missed their deadline anyway",
    "dead-letter": "could not be read",
    "retention": "were deleted from their log before a batch took them",
}


def advice(
    status: Status,
    *,
    network: Network | None,
    seconds: float,
    modes: Mapping[str, int],
    score: float | None,
    optimum: float | None,
) -> list[str]:
    """Sentences; never empty. `modes` has how many of the ledger's lines were written in each mode."""
    found: list[str] = []
    counts, mean, target = status.counts(), status.latency.mean, status.latency.target
    floor = status.floor_seconds if status.unreachable else None
    if status.ledger is not None and status.ledger.differences:
        found.append("The ledger does not add up: run `floodway audit`, which names query, place and batch.")
    if floor is not None and target is not None:
        found.append(
            f"The target of {target:g} s is below what this engine can reach, about {floor:.2f} s: raise it, "
            "or make a micro-batch cheaper (fewer shuffle partitions, less state, fewer sinks)."
        )
    elif mean is not None and target is not None and mean > LATE * target:
        found.append(f"Results were {mean:.1f} s old on average, the target is {target:g} s{_why_late(modes, counts)}")
    waiting = sum(place.waiting or 0 for place in status.places.values())
    if waiting > BACKLOG * max(status.totals.offered, 1):
        found.append(
            f"At the end {waiting:,} tuples still waited for a batch: more came than was taken, and results get later "
            "from batch to batch."
        )
    dropped = status.totals.dropped
    if any(dropped.get(reason) for reason in FOR_CAPACITY):
        found += _capacity(network, counts, seconds)
    if dropped.get("dead-letter"):
        found.append("Some records could not be read: they are in the folder dead-letters, each with the reason.")
    if dropped.get("retention"):
        found.append("Tuples were deleted before they were read: keep the logs longer, or shed more by a lower target.")
    if score is not None and optimum and score < POOR * optimum and "enforce" in modes:
        found.append(
            f"The mix kept is worth {score / optimum:.0%} of the best one: let `floodway measure` find the operators' "
            "costs, or run with --replan."
        )
    if not found and mean is None:
        return ["No latency was measured: let it run longer, until batches end."]
    return found or [_nothing_to_do(status)]


def _nothing_to_do(status: Status) -> str:
    mean, target = status.latency.mean, status.latency.target
    late = f", and results were {mean:.1f} s old on average" if mean is not None else ""
    late += f" at a target of {target:g} s" if late and target is not None else ""
    dropped = sum(status.totals.dropped.values())
    return f"Nothing: {f'{dropped:,} tuples were' if dropped else 'no tuple was'} dropped{late}."


def _why_late(modes: Mapping[str, int], counts: Counts) -> str:
    """What the modes and the drops say of it: the rest of a sentence, and what to do."""
    shed = any(count and reason in FOR_CAPACITY for (_, reason), count in counts.dropped.items())
    others = [mode for mode in modes if mode != "enforce"]
    if others and not shed:
        return (
            f", and the mode was {' and '.join(modes)}: nothing was dropped to meet it. Switch to enforce "
            "(`floodway set NAME --mode enforce`) or add capacity."
        )
    if others:
        share = sum(modes[mode] for mode in others) / max(sum(modes.values()), 1)
        return (
            f", but for {share:.0%} of the time the mode was {' and '.join(others)}, in which nothing is dropped: "
            "judge by a run in enforce alone."
        )
    return (
        f", although {'tuples were dropped' if shed else 'the mode was enforce; nothing was dropped'}: see what the "
        "controller says in `floodway top`, and whether anything but tuples costs time."
    )


def _capacity(network: Network | None, counts: Counts, seconds: float) -> list[str]:
    """How much larger a node would have to be to drop nothing."""
    if network is None or seconds <= 0:
        return ["Tuples were dropped: add capacity if they are worth it. The ledger has how many, by place and reason."]
    there = {at: offered - counts.dropped[at, "retention"] for at, offered in counts.offered.items()}
    rates = {name: there.get(name, 0) / seconds for name in network.streams}
    keeps = {at: max(0, counts.kept[at]) / offered for at, offered in there.items() if offered}
    asked, used = flows(network, rates).load, flows(network, rates, keeps).load
    found = []
    for node in network.nodes:
        if used[node] > 0 and asked[node] > used[node] * 1.02:
            found.append(
                f"To drop nothing at this load, {node} needs {asked[node] / used[node]:.1f} times the CPU it had "
                f"(asked for {asked[node]:.2f} CPU-seconds per second, used {used[node]:.2f}); else give the outputs "
                "you need most a higher weight, and the plan will spare them."
            )
    return found
