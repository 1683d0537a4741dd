"""From a finished micro-batch of a fragment to its figures on record, and from the loop's state to the job's status."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from floodway.agent.loop.steering import Steered
from floodway.job.decision import PPM
from floodway.job.ledger.fold import ORDER, Counts
from floodway.job.status.batches import Batch
from floodway.job.status.figures import Figures
from floodway.job.status.latencies import Sketch
from floodway.job.status.reasons import NO_MEASUREMENT, keep_reason
from floodway.job.status.status import Kind, NodePart, PlanPart, Status, at_inputs
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.spark.query.fragment_query import BatchReport


def result_latencies(report: BatchReport, sinks: Collection[str]) -> Sketch:
    """Latencies of what a batch delivered to these sinks, from each tuple's first arrival at any node."""
    found = Sketch()
    for name in sinks:
        if name in report.delivered:
            for seconds, tuples in zip(*report.delivered[name].latencies_seconds(report.ended_seconds), strict=True):
                found.add(float(seconds), int(tuples))
    return found


def finished_batch(
    report: BatchReport,
    counts: Counts,
    *,
    inputs: Collection[str],
    outputs: Collection[str],
    work_seconds: float,
    scale: float = 1.0,
    reason: str = "",
) -> Batch:
    """The figures of a batch; latencies count at the outputs of the whole network."""
    offered, kept = (sum(part[at] for at in inputs) for part in (counts.offered, counts.kept))
    cut_seconds = report.journal.timestamp_ms / 1e3  # the wall clock's, as in the ledger; the length is steady
    return Batch(
        query=report.query,
        batch=report.journal.batch,
        cut_seconds=cut_seconds,
        ended_seconds=cut_seconds + report.seconds,
        offered=offered,
        kept=kept,
        keep=_journaled_keep(report, counts, inputs),
        mode=next((line.mode for line in report.lines), "off"),
        reason=reason,
        latencies=result_latencies(report, outputs),
        delivered={name: written.rows for name, written in report.delivered.items()},
        work_seconds=work_seconds,
        busy_seconds=report.seconds,
        scale=scale,
    )


def _journaled_keep(report: BatchReport, counts: Counts, inputs: Collection[str]) -> float:
    """The share of what was offered at the inputs that the journaled decision keeps."""
    offered = sum(counts.offered[at] for at in inputs)
    shed = [line for line in report.lines if line.at in inputs and line.reason == ORDER[0]]
    kept = sum(line.offered * line.keep_ppm for line in shed) / PPM
    return kept / offered if offered else 1.0


def reason_of(steered: Steered, period_seconds: float, target_seconds: float) -> str:
    """Why the plan in force keeps what it keeps of the streams."""
    if not steered.control:
        return NO_MEASUREMENT
    plan, control = steered.plan, steered.control.values()
    floors = [one.floor_seconds for one in control if one.unreachable and one.floor_seconds is not None]
    return keep_reason(
        sum(rate * plan.keeps.get(name, 1.0) for name, rate in plan.rates.items()) * period_seconds,
        sum(plan.rates.values()) * period_seconds,
        mode=steered.decision.mode,
        target_seconds=target_seconds,
        batch_seconds=period_seconds,
        floor_seconds=max(floors, default=None),
    )


def _capacity_needed(network: Network, steered: Steered) -> float:
    """The load of all that arrives over the capacity planned for, at the node where that is most."""
    load = flows(network, {name: steered.rates.get(name, 0.0) for name in network.streams}).load
    return max(load[name] / node.cpu for name, node in network.nodes.items()) / steered.scale


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
    errors: int = 0,
) -> Status:
    """The status of a network that runs here, or of the part of it that one node runs."""
    plan = steered.plan
    places = figures.places(plan.keeps, now, arriving=steered.rates, waiting=waiting)
    rates, keep, totals = at_inputs(places, network.streams)
    control = steered.control.values()
    return Status(
        name=network.name,
        kind=kind,
        mode=steered.decision.mode,
        time=now,
        latency=figures.latency(target_seconds),
        rates=rates,
        keep=keep,
        totals=totals,
        decision_seen=decision_seen,
        reason=reason,
        errors=errors,
        unreachable=any(decision.unreachable for decision in control),
        floor_seconds=max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
        capacity_needed=_capacity_needed(network, steered),
        batch_count=figures.batch_count,
        places=places,
        delivered=dict(figures.fold.total.delivered),
        nodes={name: NodePart(load, network.nodes[name].cpu) for name, load in plan.load.items()},
        plan=PlanPart(
            id=steered.decision.plan,
            planner=steered.planner,
            objective=steered.objective,
            overloaded=plan.overloaded,
            scale=steered.scale,
        ),
        ledger=figures.ledger(),
        network=network.name,
    )
