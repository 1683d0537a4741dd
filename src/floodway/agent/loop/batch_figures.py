"""From a finished micro-batch of a fragment to its figures on record, and from the loop's state to the job's status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from floodway.agent.loop.steering import Steered
from floodway.job.decision import Mode
from floodway.job.ledger.fold import ORDER, Counts
from floodway.job.status.batches import Batch, Latency, Sketch
from floodway.job.status.figures import Figures
from floodway.job.status.parts import BY_COSTS, NO_MEASUREMENT, AccuracyPart, executors_more, keep_reason
from floodway.job.status.status import KeyPart, Kind, NodePart, Place, PlanPart, Status, at_inputs
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.shed.keys.quotas import ALL_NULL, MOST_NULL, NO_LARGE_KEY
from floodway.spark.source.keys import NULL_NAME, KeyDrops
from floodway.spark.source.offsets import BatchOffset
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.options.accuracy import Accuracy

LEAST_LARGE = 1e-3
"""The share of the tuples from which on a key counts as large."""

FULL = 0.9
"""Share of a link or a memory from which on it counts as full."""


def result_latencies(report: FragmentReport, sinks: Collection[str]) -> Sketch:
    """Latencies of what a batch delivered to these sinks, from each tuple's first arrival at any node."""
    found = Sketch()
    for name in sinks:
        if name in report.delivered:
            for seconds, tuples in zip(*report.delivered[name].latencies_seconds(report.ended_seconds), strict=True):
                found.add(float(seconds), int(tuples))
    return found


def finished_batch(
    report: FragmentReport,
    counts: Counts,
    *,
    inputs: Collection[str],
    outputs: Collection[str],
    work_seconds: float,
    scale: float = 1.0,
    reason: str = "",
) -> Batch:
    """The figures of a batch; latencies count at the outputs of the whole network.

    `reason` is that of the plan in force when the batch is told of. A batch that dropped has one of its own: the plan
    it was cut under may have been another, and what waited then more than was planned for.
    """
    offered, kept = (sum(part[at] for at in inputs) for part in (counts.offered, counts.kept))
    keep = _journaled_keep(report, counts, inputs)
    mode = next((line.mode for line in report.lines), "off")
    if mode == "enforce" and keep < 1.0:
        reason = keep_reason(keep * offered, offered, mode="enforce", batch_seconds=report.seconds)
    cut_seconds = report.journal.timestamp_ms / 1e3  # the wall clock's, as in the ledger; the length is steady
    return Batch(
        query=report.query,
        batch=report.journal.batch,
        cut_seconds=cut_seconds,
        ended_seconds=cut_seconds + report.seconds,
        offered=offered,
        kept=kept,
        keep=keep,
        mode=mode,
        reason=reason,
        latencies=result_latencies(report, outputs),
        delivered={name: written.rows for name, written in report.delivered.items()},
        work_seconds=work_seconds,
        busy_seconds=report.seconds,
        scale=scale,
    )


def _journaled_keep(report: FragmentReport, counts: Counts, inputs: Collection[str]) -> float:
    """The share of what was offered at the inputs that the journaled decision keeps."""
    offered = sum(counts.offered[at] for at in inputs)
    shed = [line for line in report.lines if line.at in inputs and line.reason == ORDER[0]]
    kept = sum(line.offered * line.keep_ppm for line in shed) / PPM
    return kept / offered if offered else 1.0


def reason_of(steered: Steered, period_seconds: float, target_seconds: float) -> str:
    """Why the plan in force keeps what it keeps of the streams."""
    plan, control = steered.plan, steered.control.values()
    fits = sum(rate * plan.keeps.get(name, 1.0) for name, rate in plan.rates.items()) * period_seconds
    waiting = sum(plan.rates.values()) * period_seconds
    if not control and fits >= waiting:
        return NO_MEASUREMENT
    floors = [one.floor_seconds for one in control if one.unreachable and one.floor_seconds is not None]
    reason = keep_reason(
        fits,
        waiting,
        mode=steered.decision.mode,
        batch_seconds=period_seconds,
        target_seconds=target_seconds,
        floor_seconds=max(floors, default=None),
    )
    return reason if control else f"{reason}, {BY_COSTS}"


def capacity_needed(network: Network, steered: Steered) -> float:
    """The load of all that arrives over the capacity planned for, at the node where that is most."""
    load = flows(network, {name: steered.rates.get(name, 0.0) for name in network.streams}).load
    nodes = network.nodes.items()
    return max(load[name] / (node.cpu * steered.scales.get(name, steered.scale)) for name, node in nodes)


def limits_words(network: Network, steered: Steered) -> str:
    """Links and memories that the plan in force fills, to be added to a reason."""
    if not (network.has_fixed_limits and steered.plan.drops):
        return ""
    used = flows(network, {name: steered.rates.get(name, 0.0) for name in network.streams}, steered.plan.keeps)
    full = [
        f"the link {link.source}->{link.target}"
        for link in network.links
        if used.bandwidth[link.source, link.target] >= FULL * link.bandwidth
    ]
    full += [
        f"the memory of {name}"
        for name, node in network.nodes.items()
        if node.memory is not None and used.memory[name] >= FULL * node.memory
    ]
    return f"; {' and '.join(full)} {'is' if len(full) == 1 else 'are'} full" if full else ""


def loop_status(
    network: Network,
    figures: Figures,
    steered: Steered,
    *,
    kind: Kind,
    now: float,
    target_seconds: float,
    waiting: Mapping[str, int],
    reason: str = "",
    decision_seen: bool | None,
    executors: int | None = None,
    efficiency: float | None = None,
) -> Status:
    """The status of a network that runs here, or of the part of it that one node runs."""
    plan = steered.plan
    places = {
        at: Place(plan.keeps.get(at, 1.0), steered.rates.get(at), waiting.get(at))
        for at in dict.fromkeys((*plan.keeps, *steered.rates))
    }
    keep = 1.0 if steered.decision.mode == "off" else at_inputs(places, network.streams)[1]
    control, needed = steered.control.values(), capacity_needed(network, steered)
    told = Status(
        name=network.name,
        kind=kind,
        mode=steered.decision.mode,
        time=now,
        latency=Latency(target=target_seconds),
        keep=keep,
        decision_seen=decision_seen,
        reason=reason,
        unreachable=any(decision.unreachable for decision in control),
        floor_seconds=max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
        capacity_needed=needed,
        executors_more=executors_more(executors, needed, efficiency),
        executor_efficiency=efficiency,
        places=places,
        nodes={name: NodePart(load, network.nodes[name].cpu) for name, load in plan.load.items()},
        plan=PlanPart(
            id=steered.decision.plan,
            planner=steered.planner,
            objective=steered.objective,
            overloaded=plan.overloaded,
            scale=steered.scale,
        ),
        network=network.name,
    )
    return figures.refreshed(told)


class LastCuts:
    """The last batch of every stream; `drops` are the streams that are shed by key."""

    def __init__(self, drops: Mapping[str, KeyDrops]) -> None:
        self._drops = drops
        self._offsets: dict[str, BatchOffset] = {}

    def cut(self, query: str, journal: JournaledBatch) -> None:
        """Take in a batch of a query."""
        for at, offset in journal.offsets.items():
            self._offsets[f"{query} {at}"] = offset

    def would_drop(self, mode: Mode) -> dict[str, int]:
        """Tuples of the last batches that enforcing would drop for their age, number or key, by reason."""
        if mode != "observe":
            return {}
        found: Counter[str] = Counter()
        for offset in self._offsets.values():
            found.update(offset.would_drop)
        return {reason: tuples for reason, tuples in found.items() if tuples}

    def keys(self) -> tuple[KeyPart, ...]:
        """The keys that send most, while something is dropped; with their stream where several have shares."""
        several = sum(bool(drops.share_by) for drops in self._drops.values()) > 1
        found = []
        for offset in self._offsets.values():
            tuples = sum(offset.end[at] - offset.start.get(at, 0) for at in offset.end)
            for name, count, keep_ppm in () if offset.keys is None else offset.keys.large:
                key = f"{offset.stream}: {name}" if several else name
                found.append(KeyPart(key, count / max(tuples, 1), keep_ppm / PPM))
        return tuple(found)

    def accuracy(self, latency_seconds: float | None, target_seconds: float) -> AccuracyPart | None:
        """The accuracy of the stream that is farthest from its target; None where nobody asks for one."""
        parts = [
            _accuracy(target, None if offset.keys is None else offset.keys.accuracy, latency_seconds, target_seconds)
            for offset in self._offsets.values()
            if (drops := self._drops.get(offset.stream)) is not None and (target := drops.target) is not None
        ]
        return max(parts, key=lambda one: (one.bound is None, (one.bound or 0.0) / one.within), default=None)

    def warnings(self) -> tuple[str, ...]:
        """What an operator must know of the keys."""
        nulls = any(one.key.endswith(NULL_NAME) and one.share > MOST_NULL for one in self.keys())
        by_key = [one.keys for one in self._offsets.values() if one.keys is not None and one.keys.share_by]
        small = bool(by_key) and all(one.share < LEAST_LARGE for one in self.keys())
        return tuple(text for text, holds in ((ALL_NULL, nulls), (NO_LARGE_KEY, small)) if holds)


def _accuracy(
    target: Accuracy, told: tuple[int, ...] | None, latency_seconds: float | None, target_seconds: float
) -> AccuracyPart:
    """What the status says; a batch without `told` has kept everything."""
    groups, bound, needed, allowed = told or (0, 0, 0, PPM)
    known = None if bound < 0 else bound / PPM
    late = None
    if target.prefer == "accuracy" and needed > allowed and latency_seconds is not None:
        late = max(0.0, latency_seconds - target_seconds)
    return AccuracyPart(
        aggregate=str(target),
        within=target.within,
        prefer=target.prefer,
        groups=groups,
        bound=known,
        held=known is not None and known <= target.within,
        needed_keep=needed / PPM if told else None,
        allowed_keep=allowed / PPM if told else None,
        late_seconds=late,
    )
