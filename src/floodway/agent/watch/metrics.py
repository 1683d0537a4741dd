"""Prometheus metrics of jobs, by its conventions: base units, `_total` for counters, one name a thing.

Everything is read from what jobs write anyway (status, ledger, batches), at the moment Prometheus asks: a job pays
nothing for being watched, and its counters go on where they were after a restart of whoever serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from floodway.job.ledger.fold import ORDER
from floodway.job.status.batches import BUCKETS, Sketch
from floodway.job.status.status import Status

MODES = ("enforce", "observe", "off")


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of one job when it is asked: its status, all latencies, and what its nodes do.

    `load` is the measured load of each node as a share of its CPU; where nothing is measured, the planned one counts.
    """

    job: str
    status: Status | None
    latencies: Sketch = field(default_factory=Sketch)
    load: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    optimum: float | None = None

    def node_loads(self) -> dict[str, float]:
        """Load of each node over its CPU."""
        if self.load or self.status is None:
            return dict(self.load)
        return {name: one.load / one.cpu for name, one in self.status.nodes.items() if one.load is not None and one.cpu}


def metrics_text(watched: Iterable[Watched]) -> bytes:
    """The exposition of these jobs.

    >>> text = metrics_text([Watched("shop", Status("shop", "run", "off", time=0.0))]).decode()
    >>> 'floodway_mode{job_name="shop",mode="off"} 1.0' in text
    True
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(list(watched)))
    return generate_latest(registry)


def families(watched: Iterable[Watched]) -> Iterator[Metric]:
    """The same as data: for those who send it another way."""
    yield from _Jobs(list(watched)).collect()


def metrics_route(
    read: Callable[[], Iterable[Watched]], admit: Callable[[Request], None] = lambda request: None
) -> BaseRoute:
    """`GET /metrics` over whatever `read` finds; `admit` refuses whom it is not for."""

    def metrics(request: Request) -> Response:
        admit(request)
        return Response(metrics_text(read()), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", metrics, methods=["GET"])


class _Jobs(Collector):
    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        known = [(job, job.status) for job in self._watched if job.status is not None]
        for part in (_tuples, _latency, _state, _plans, _federation):
            yield from part(known)


Known = Sequence[tuple[Watched, Status]]


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"floodway_{name}", text, labels=["job_name", *labels])


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"floodway_{name}", text, labels=["job_name", *labels])


def _set(family: GaugeMetricFamily, labels: Sequence[str], value: float | None) -> None:
    """A gauge whose figure is not known has no sample."""
    if value is not None:
        family.add_metric(labels, value)


def _tuples(jobs: Known) -> Iterator[Metric]:
    offered = _counter("offered_tuples", "Tuples that came to a drop location.", "place")
    kept = _counter("kept_tuples", "Tuples that passed a drop location.", "place")
    dropped = _counter("dropped_tuples", "Tuples dropped, by place and reason.", "place", "reason")
    delivered = _counter("delivered_tuples", "Tuples that a sink got.", "place")
    recovered = _counter("recovered_tuples", "Dropped tuples that were processed later.")
    ratio = _gauge("drop_ratio", "Share of tuples dropped at the inputs in the last ten seconds.")
    planned = _gauge(
        "would_drop_ratio", "Share of what arrives that the plan would drop: what enforcing would cost, in any mode."
    )
    share = _gauge("key_input_ratio", "Part of the input that comes from a key, of those that send most.", "key")
    keep = _gauge("key_keep_ratio", "Part of a key's tuples that the decision keeps.", "key")
    would = _gauge("would_drop_tuples", "In observe: tuples of the last batch that enforcing would drop.", "reason")
    first = _gauge("first_of_key_tuples", "Tuples of the last batch that are the first of their keys, and kept for it.")
    for job, status in jobs:
        if status.shed is not None:
            first.add_metric([job.job], status.shed.first)
        for reason, count in status.would_drop_tuples.items():
            would.add_metric([job.job, reason], count)
        for one in status.keys:
            share.add_metric([job.job, one.key], one.share)
            keep.add_metric([job.job, one.key], one.keep)
        for at, place in status.places.items():
            offered.add_metric([job.job, at], place.offered)
            kept.add_metric([job.job, at], place.kept)
            # A counter that is there from the start: a rate over it is then right from the first drop on.
            for reason in sorted({*place.dropped, ORDER[0]}):
                dropped.add_metric([job.job, at, reason], place.dropped.get(reason, 0))
        for sink, count in status.delivered.items():
            delivered.add_metric([job.job, sink], count)
        recovered.add_metric([job.job], status.totals.recovered)
        _set(ratio, [job.job], status.loss)
        planned.add_metric([job.job], status.would_drop)
    yield from (offered, kept, dropped, delivered, recovered, ratio, planned, share, keep, would, first)


def _latency(jobs: Known) -> Iterator[Metric]:
    histogram = HistogramMetricFamily(
        "floodway_result_latency_seconds",
        "From a tuple's arrival to its result being visible, of all results since the job began.",
        labels=["job_name"],
    )
    mean = _gauge("latency_seconds", "Mean latency of the results of the last ten seconds.")
    target = _gauge("latency_target_seconds", "The latency asked for.")
    own = _gauge("output_latency_seconds", "Mean latency at an output with a target of its own.", "output")
    own_target = _gauge("output_latency_target_seconds", "The latency asked for at an output.", "output")
    floor = _gauge("latency_unreachable", "1 if the target is below what the engine can reach.")
    needed = _gauge("capacity_needed_ratio", "Times the present capacity that would keep everything at the target.")
    executors = _gauge("executors_needed", "Executors more that would keep everything at the target, on a cluster.")
    bound = _gauge("accuracy_bound_ratio", "Widest 95% bounds of the aggregate in the last batch, over its value.")
    within = _gauge("accuracy_target_ratio", "The width of the bounds asked for.")
    accurate = _gauge("accuracy_needed_keep_ratio", "Share of the tuples that the accuracy asked for needs.")
    behind = _gauge("catch_up_seconds", "When a job that drops nothing will have caught up; Inf: not at these rates.")
    bounds = [*map(str, BUCKETS), "+Inf"]
    for job, status in jobs:
        buckets = list(zip(bounds, map(float, job.latencies.cumulative()), strict=True))
        histogram.add_metric([job.job], buckets, job.latencies.total_seconds)
        for output, latency in status.outputs.items():
            _set(own, [job.job, output], latency.mean)
            _set(own_target, [job.job, output], latency.target)
        _set(mean, [job.job], status.latency.mean)
        _set(target, [job.job], status.latency.target)
        floor.add_metric([job.job], float(status.unreachable))
        _set(needed, [job.job], status.capacity_needed)
        _set(executors, [job.job], status.executors_more)
        if status.behind is not None:
            seconds = status.behind.catch_up_seconds
            behind.add_metric([job.job], float("inf") if seconds is None else seconds)
        if status.accuracy is not None:
            _set(bound, [job.job], status.accuracy.bound)
            within.add_metric([job.job], status.accuracy.within)
            _set(accurate, [job.job], status.accuracy.needed_keep)
    yield from (histogram, mean, target, own, own_target, floor, needed, executors, behind, bound, within, accurate)


def _state(jobs: Known) -> Iterator[Metric]:
    backlog = _gauge("backlog_tuples", "Tuples that arrived and wait for a batch.", "place")
    load = _gauge("node_load_ratio", "Work of the tuples kept over the node's CPU.", "node")
    mode = _gauge("mode", "1 for the mode in force.", "mode")
    differences = _gauge("ledger_differences", "Ways in which the ledger does not add up.")
    seen = _gauge("decision_seen", "1 if the last batch was cut by a decision of this job, 0 if by none.")
    errors = _counter("errors", "Steps of the job's own that failed: writing, planning, talking to a partner.")
    heard = _gauge(
        "status_timestamp_seconds", "When the job last told its status, the one of its nodes that is silent longest."
    )
    nodes = _gauge(
        "node_status_timestamp_seconds", "When a node that is a process of its own last told its status.", "node"
    )
    for job, status in jobs:
        for at, place in status.places.items():
            _set(backlog, [job.job, at], place.waiting)
        for name, share in job.node_loads().items():
            load.add_metric([job.job, name], share)
        modes = {one.mode for one in status.nodes.values()} if status.mode == "mixed" else {status.mode}
        for name in MODES:
            mode.add_metric([job.job, name], float(name in modes))
        differences.add_metric([job.job], len(status.ledger.differences) if status.ledger else 0)
        _set(seen, [job.job], None if status.decision_seen is None else float(status.decision_seen))
        errors.add_metric([job.job], status.errors)
        heard.add_metric([job.job], status.time)
        for name, node in status.nodes.items():
            _set(nodes, [job.job, name], node.time)
    yield from (backlog, load, mode, differences, seen, errors, heard, nodes)


def _plans(jobs: Known) -> Iterator[Metric]:
    info = _gauge(
        "plan_info",
        "1; the labels say for which network, by which planner and for what it is planned, and whether it must drop.",
        *("network", "overloaded", "planner", "objective"),
    )
    keep = _gauge("plan_keep_ratio", "Share to keep, as planned.", "place")
    scale = _gauge("capacity_scale_ratio", "Capacity planned for over the nominal one.")
    score = _gauge("score_per_second", "Weighted tuples/s delivered.")
    optimum = _gauge("optimum_per_second", "The best score for the rates and the capacity used.")
    for job, status in jobs:
        plan = status.plan
        if plan is not None:
            labels = [status.network, str(plan.overloaded).lower(), plan.planner, plan.objective]
            info.add_metric([job.job, *labels], 1.0)
            scale.add_metric([job.job], plan.scale)
        for at, place in status.places.items():
            keep.add_metric([job.job, at], place.keep)
        _set(score, [job.job], job.score)
        _set(optimum, [job.job], job.optimum)
    yield from (info, keep, scale, score, optimum)


def _federation(jobs: Known) -> Iterator[Metric]:
    moves = _counter("moves", "Moves of queries to or from a partner that have ended, by how.", "state")
    open_moves = _gauge("moves_open", "Moves that have begun and not ended.")
    contracts = _gauge("contracts", "Contracts with partners.")
    for job, status in jobs:
        member = status.participant
        if member is not None:
            for state, count in member.ended_moves.items():
                moves.add_metric([job.job, state], count)
            open_moves.add_metric([job.job], member.open_moves)
            contracts.add_metric([job.job], len(member.contracts))
    yield from (moves, open_moves, contracts)
