"""Prometheus metrics of jobs, by its conventions: base units, `_total` for counters, one name a thing.

Everything is read from what jobs write anyway (status, ledger, batches), at the moment Prometheus asks: a job pays
nothing for being watched, and its counters go on where they were after a restart of whoever serves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from floodway.agent.watch.statuses import has_mode, is_participant, normal, would_drop
from floodway.job.fold import Counts
from floodway.job.latencies import BUCKETS, Latencies

MODES = ("enforce", "observe", "off")
ENDED = ("done", "failed")
"""How a move ends; every other state is one on the way."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of one job when it is asked: status, sums of its ledger, latencies, and what its nodes can do."""

    job: str
    status: Mapping[str, Any]
    counts: Counts = field(default_factory=Counts)
    differences: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    load: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    score: float | None = None
    optimum: float | None = None
    heard: Mapping[str, float] = field(default_factory=dict)
    """When each of its nodes last spoke, in seconds since 1970, where they are processes of their own."""


def of_status(status: Mapping[str, Any], job: str | None = None) -> Watched:
    """A job of which only its status is known: a participant, which tells its load and its own CPU."""
    told = normal(status)
    name, cpu = job or str(told.get("name", "")), told.get("cpu")
    load = {node: value / cpu for node, value in (told.get("load") or {}).items()} if cpu else {}
    return Watched(job=name, status=told, load=load)


def metrics_text(watched: Iterable[Watched]) -> bytes:
    """The exposition of these jobs.

    >>> text = metrics_text([Watched("shop", {"mode": "off", "target_seconds": 2.0})]).decode()
    >>> 'floodway_mode{job_name="shop",mode="off"} 1.0' in text
    True
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(list(watched)))
    return generate_latest(registry)


def families(watched: Iterable[Watched]) -> Iterator[Metric]:
    """The same as data: for those who send it another way."""
    yield from _Jobs(list(watched)).collect()


def metrics_route(read: Callable[[], Iterable[Watched]]) -> BaseRoute:
    """`GET /metrics` over whatever `read` finds."""

    def metrics(request: Request) -> Response:
        return Response(metrics_text(read()), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", metrics, methods=["GET"])


class _Jobs(Collector):
    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        yield from _tuples(self._watched)
        yield from _latency(self._watched)
        yield from _state(self._watched)
        yield from _plans(self._watched)
        yield from _federation(self._watched)


def _tuples(jobs: Sequence[Watched]) -> Iterator[Metric]:
    offered = CounterMetricFamily(
        "floodway_offered_tuples", "Tuples that came to a drop location.", labels=["job_name", "place"]
    )
    kept = CounterMetricFamily(
        "floodway_kept_tuples", "Tuples that passed a drop location.", labels=["job_name", "place"]
    )
    dropped = CounterMetricFamily(
        "floodway_dropped_tuples", "Tuples dropped, by place and reason.", labels=["job_name", "place", "reason"]
    )
    delivered = CounterMetricFamily(
        "floodway_delivered_tuples", "Tuples that a sink got.", labels=["job_name", "place"]
    )
    ratio = GaugeMetricFamily(
        "floodway_drop_ratio", "Share of tuples dropped over the job's latest batches.", labels=["job_name"]
    )
    planned = GaugeMetricFamily(
        "floodway_would_drop_ratio",
        "Share of what arrives that the plan would drop: what enforcing would cost, in any mode.",
        labels=["job_name"],
    )
    for job in jobs:
        for family, counts in (
            (offered, job.counts.offered),
            (kept, job.counts.kept),
            (delivered, job.counts.delivered),
        ):
            for place, count in counts.items():
                family.add_metric([job.job, place], count)
        for place in job.counts.offered:
            # A counter that is there from the start: a rate over it is then right from the first drop on.
            reasons = {reason for at, reason in job.counts.dropped if at == place} | {"shedder"}
            for reason in sorted(reasons):
                dropped.add_metric([job.job, place, reason], job.counts.dropped[place, reason])
        if job.status.get("loss") is not None:
            ratio.add_metric([job.job], job.status["loss"])
        would = would_drop(job.status)
        if would is not None:
            planned.add_metric([job.job], would)
    yield from (offered, kept, dropped, delivered, ratio, planned)


def _latency(jobs: Sequence[Watched]) -> Iterator[Metric]:
    histogram = HistogramMetricFamily(
        "floodway_result_latency_seconds",
        "From a tuple's arrival to its result being visible.",
        labels=["job_name"],
    )
    mean = GaugeMetricFamily(
        "floodway_latency_seconds", "Mean latency of the results of the last batch.", labels=["job_name"]
    )
    target = GaugeMetricFamily("floodway_latency_target_seconds", "The latency asked for.", labels=["job_name"])
    floor = GaugeMetricFamily(
        "floodway_latency_unreachable", "1 if the target lies below what the engine can reach.", labels=["job_name"]
    )
    for job in jobs:
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        buckets = list(zip(bounds, map(float, job.latencies.cumulative()), strict=True))
        histogram.add_metric([job.job], buckets, job.latencies.total_seconds)
        if job.status.get("latency_seconds") is not None:
            mean.add_metric([job.job], job.status["latency_seconds"])
        if job.status.get("target_seconds") is not None:
            target.add_metric([job.job], job.status["target_seconds"])
        floor.add_metric([job.job], float(bool(job.status.get("unreachable"))))
    yield from (histogram, mean, target, floor)


def _state(jobs: Sequence[Watched]) -> Iterator[Metric]:
    backlog = GaugeMetricFamily(
        "floodway_backlog_tuples", "Tuples that arrived and wait for a batch.", labels=["job_name", "place"]
    )
    load = GaugeMetricFamily(
        "floodway_node_load_ratio", "Work of the tuples kept over the node's CPU.", labels=["job_name", "node"]
    )
    mode = GaugeMetricFamily("floodway_mode", "1 for the mode in force.", labels=["job_name", "mode"])
    differences = GaugeMetricFamily(
        "floodway_ledger_differences", "Ways in which the ledger does not add up.", labels=["job_name"]
    )
    heard = GaugeMetricFamily(
        "floodway_status_timestamp_seconds",
        "When the job last told its status, the one of its nodes that is silent longest.",
        labels=["job_name"],
    )
    nodes = GaugeMetricFamily(
        "floodway_node_status_timestamp_seconds",
        "When a node that is a process of its own last told its status.",
        labels=["job_name", "node"],
    )
    for job in jobs:
        for place, count in job.waiting.items():
            backlog.add_metric([job.job, place], count)
        for node, share in job.load.items():
            load.add_metric([job.job, node], share)
        current = str(job.status.get("mode") or "").split(", ")
        for name in MODES if has_mode(job.status) else ():
            mode.add_metric([job.job, name], float(name in current))
        differences.add_metric([job.job], job.differences)
        if "time_us" in job.status:
            heard.add_metric([job.job], job.status["time_us"] / 1e6)
        for node, seconds in job.heard.items():
            nodes.add_metric([job.job, node], seconds)
    yield from (backlog, load, mode, differences, heard, nodes)


def _plans(jobs: Sequence[Watched]) -> Iterator[Metric]:
    plan = GaugeMetricFamily(
        "floodway_plan_info",
        "1; the labels say for which network, by which planner and for what it is planned, and whether it must drop.",
        labels=["job_name", "network", "overloaded", "planner", "objective"],
    )
    keep = GaugeMetricFamily("floodway_plan_keep_ratio", "Share to keep, as planned.", labels=["job_name", "place"])
    scale = GaugeMetricFamily(
        "floodway_capacity_scale_ratio", "Capacity planned for over the nominal one.", labels=["job_name"]
    )
    score = GaugeMetricFamily("floodway_score_per_second", "Weighted tuples/s delivered.", labels=["job_name"])
    optimum = GaugeMetricFamily(
        "floodway_optimum_per_second", "The best score for the rates and the capacity used.", labels=["job_name"]
    )
    for job in jobs:
        status = job.status
        overloaded = str(bool(status.get("overloaded"))).lower()
        if has_mode(status):  # a participant moves and sheds, but has no plan of drops
            by = [str(status.get(key) or "") for key in ("planner", "objective")]
            plan.add_metric([job.job, str(status.get("name", job.job)), overloaded, *by], 1.0)
        for place, share in (status.get("keeps") or {}).items():
            keep.add_metric([job.job, place], share)
        for family, value in ((scale, status.get("scale")), (score, job.score), (optimum, job.optimum)):
            if value is not None:
                family.add_metric([job.job], value)
    yield from (plan, keep, scale, score, optimum)


def _federation(jobs: Sequence[Watched]) -> Iterator[Metric]:
    moves = CounterMetricFamily(
        "floodway_moves", "Moves of queries to or from a partner that have ended, by how.", labels=["job_name", "state"]
    )
    open_moves = GaugeMetricFamily("floodway_moves_open", "Moves that have begun and not ended.", labels=["job_name"])
    contracts = GaugeMetricFamily("floodway_contracts", "Contracts with partners.", labels=["job_name"])
    for job in jobs:
        if not is_participant(job.status):
            continue
        ended, under_way = move_counts(job.status)
        for state, count in ended.items():
            moves.add_metric([job.job, state], count)
        open_moves.add_metric([job.job], under_way)
        contracts.add_metric([job.job], len(job.status.get("contracts") or ()))
    yield from (moves, open_moves, contracts)


def move_counts(status: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """Moves by how they ended, both ways there from 0 on, and how many are under way.

    Totals where the status has them, as it lists only the latest moves.

    >>> move_counts({"moves": [{"state": "taking"}, {"state": "failed"}, {"state": "done"}]})
    ({'done': 1, 'failed': 1}, 1)
    >>> move_counts({"moves": [{"state": "done"}], "moves_total": {"done": 70, "failed": 2, "given": 1}})
    ({'done': 70, 'failed': 2}, 1)
    """
    totals = status.get("moves_total")
    if not isinstance(totals, Mapping):
        totals = Counter(str(move.get("state")) for move in status.get("moves") or () if isinstance(move, Mapping))
    ended = {state: int(totals.get(state, 0)) for state in ENDED}
    return ended, sum(int(count) for count in totals.values()) - sum(ended.values())
