"""What a run remembers for its report: batches, latencies, and how much had arrived when.

Batches are added up as they end: after a month a run holds what it held after an hour. Of single batches the latest
`MOST_POINTS` stay, for plots; all of them are in the run's `batches/`.

The report says how good the mix was that a run kept: its score beside the best that the linear program finds, over the
same batches.

    score = Σ weight · delivered / seconds
    optimum = the LP's best for the rates that the same batches were offered, on the CPU, the bandwidth and the memory
              that what they kept asked for, and what was delivered beyond what the kept tuples account for
              (`network/flow.py`)

What was kept is one of the plans that the LP chooses from, so a score is at most the optimum.

Deadlines at the sink: which results came in time, counted where they become visible.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.job.ledger.timeline import Timeline
from floodway.job.status.batches import Batch, Latency, Sketch
from floodway.json_text import plain_fields
from floodway.network.flow import flows, link_of
from floodway.network.model import Network
from floodway.planning.exact import ExactPlanner, best_score
from floodway.planning.program import Program
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.sinks import Written


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """One finished micro-batch, for plots: seconds since the start of the run."""

    fragment: str
    seconds: float
    batch_seconds: float
    latency_seconds: float | None
    offered: int
    kept: int
    scale: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """All figures of a run. `score` and `optimum` are weighted tuples/s over the measured part (see `measured`).

    `counts` are the ledger's sums, `latencies` are by output.

    `optimum` is the LP's best for what the same batches were offered and the capacity the engine turned out to have:
    what was kept asked for `capacity_scale` times the nominal CPU of the busiest node. `nominal_optimum` is for the
    capacity the file declares. `load` is what was kept, in CPU-seconds per second; `costs` are CPU-seconds per tuple
    and `selectivities` tuples out per tuple in, as the batches showed them. `bandwidth` is in bytes/s by pair of nodes,
    `memory` in bytes of state by node.
    """

    counts: Counts
    differences: tuple[str, ...]
    latency: Latency
    latencies: Mapping[str, Latency]
    score: float
    optimum: float
    nominal_optimum: float
    load: Mapping[str, float]
    throughput: Mapping[str, float]
    rates: Mapping[str, float]
    capacity_scale: float
    measured_seconds: float
    mode: str
    unreachable: bool
    floor_seconds: float | None
    costs: Mapping[str, float]
    selectivities: Mapping[str, float]
    points: tuple[BatchPoint, ...]
    deadlines: Mapping[str, Any] = field(default_factory=dict)
    bandwidth: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `floodway run`."""
        reconciled = {"reconciled": not self.differences}
        return {**self.counts.to_dict(), **reconciled, **plain_fields(self, "counts", "points")}


MOST_POINTS = 20_000


@dataclass
class _Sums:
    """Batches that ended in the measured part, added up: tuples at places and outputs, and the latencies of results."""

    ended_seconds: float | None = None
    counts: Counts = field(default_factory=Counts)
    delivered: Counter[str] = field(default_factory=Counter)
    latencies: Sketch = field(default_factory=Sketch)

    def add(self, batch: Batch, counts: Counts) -> None:
        self.ended_seconds = batch.ended_seconds
        self.counts.merge(counts)
        self.delivered.update(batch.delivered)


class RunRecord:
    """Collects while a run goes on. Figures "after settling" begin at `settle`.

    The measured part reaches from the end of one batch to the end of another: cut anywhere else, it would hold a part
    of a batch at either end, whose results all come at once. With a single batch it reaches back to the settling.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.points: deque[BatchPoint] = deque(maxlen=MOST_POINTS)
        self.started = 0.0
        self._settled_at: float | None = None
        self._ended_at = 0.0
        self._over = False
        self._arrived: dict[str, Mapping[str, int]] = {}
        self._first = _Sums()
        self._later = _Sums()
        self._held: dict[str, list[int]] = {}

    def begin(self, now: float, arrived: Mapping[str, int]) -> None:
        """The queries run and the load has started."""
        self.started = self._ended_at = now
        self._arrived["begin"] = self._arrived["end"] = arrived

    def settle(self, now: float, arrived: Mapping[str, int]) -> None:
        """From here on latency, score and rates count."""
        self._settled_at = now
        self._arrived["begin"] = arrived

    def end(self, now: float, arrived: Mapping[str, int]) -> None:
        """The measured part is over."""
        self._ended_at = now
        self._arrived["end"] = arrived
        self._over = True

    def batch(self, fragment: str, batch: Batch, counts: Counts) -> None:
        """Note a finished batch of a fragment."""
        since, length = batch.ended_seconds - self.started, batch.ended_seconds - batch.cut_seconds
        late = batch.latencies.mean
        self.points.append(BatchPoint(fragment, since, length, late, batch.offered, batch.kept, batch.scale))
        if self._settled_at is not None and not self._over and batch.ended_seconds >= self._settled_at:
            sums = self._first if self._first.ended_seconds is None else self._later
            sums.add(batch, counts)
            # Latencies count for batches cut after settling: those owe nothing to the start.
            if self.is_measured(batch):
                sums.latencies.merge(batch.latencies)

    def state(self, batch: Batch, held: Mapping[str, int]) -> None:
        """Note the bytes of state of every node after a batch."""
        for node, size in held.items() if self.is_measured(batch) else ():
            self._held.setdefault(node, []).append(size)

    def memory(self) -> dict[str, float]:
        """Mean bytes of state of every node after settling."""
        return {node: sum(sizes) / len(sizes) for node, sizes in self._held.items()}

    def bandwidth(self, network: Network) -> dict[str, float]:
        """Bytes/s from node to node over the measured part, by the size of tuples in this network."""
        found: dict[str, float] = {}
        for arc in network.arcs:
            link = link_of(network, arc)
            if link is not None:
                rate = self._measured().delivered[str(arc)] / (self.measured_seconds or 1.0)
                name = "->".join(link)
                found[name] = found.get(name, 0.0) + rate * network.tuple_bytes(arc.producer)
        return found

    def is_measured(self, batch: Batch) -> bool:
        """Whether the latencies of a batch count."""
        return self._settled_at is not None and not self._over and batch.cut_seconds >= self._settled_at

    def _measured(self) -> _Sums:
        """The batches that count: all but the first, whose end only begins the measured part; or the only one."""
        return self._first if self._later.ended_seconds is None else self._later

    def kept_shares(self) -> dict[str, float]:
        """Share kept at each place over the measured part."""
        counts = self._measured().counts
        return {at: counts.kept[at] / offered for at, offered in counts.offered.items() if offered}

    @property
    def measured_seconds(self) -> float:
        """Length of the measured part."""
        if self._first.ended_seconds is None:
            return 0.0
        if self._later.ended_seconds is None:
            return self._first.ended_seconds - (self._settled_at or self.started)
        return self._later.ended_seconds - self._first.ended_seconds

    def latencies(self) -> Sketch:
        """Latencies of results after settling."""
        return self._measured().latencies

    def rates(self) -> dict[str, float]:
        """Mean arrival rates between settling and end, tuples/s."""
        before, after = self._arrived["begin"], self._arrived["end"]
        length = max(self._ended_at - (self._settled_at or self.started), 1e-9)
        return {name: (after[name] - before[name]) / length for name in after}

    def offered_rates(self) -> dict[str, float]:
        """Tuples/s that the measured batches were offered at each stream, over their own seconds."""
        length = self.measured_seconds
        if length == 0.0:
            return self.rates()
        offered = self._measured().counts.offered
        return {name: offered[name] / length for name in self._network.streams}

    def throughput(self) -> dict[str, float]:
        """Tuples/s delivered to each output over the measured part."""
        length = self.measured_seconds or 1.0
        delivered = self._measured().delivered
        return {name: delivered[name] / length for name in self._network.outputs}


@dataclass(frozen=True, slots=True)
class Score:
    """Weighted tuples per second, the optimum for the capacity used and for that of the file, and the load by node."""

    score: float
    optimum: float
    nominal_optimum: float
    load: Mapping[str, float]
    capacity_scale: float
    throughput: Mapping[str, float]


def score_of(network: Network, record: RunRecord) -> Score:
    """The score of what was recorded; `capacity_scale` is the load of the busiest node over its nominal CPU."""
    offered, throughput = record.offered_rates(), record.throughput()
    kept = flows(network, offered, record.kept_shares())
    load = kept.load
    scale = max(load[name] / node.cpu for name, node in network.nodes.items())
    score = network.score(throughput)
    exact = ExactPlanner(Program(network))
    return Score(
        score=score,
        optimum=best_score(exact, offered, kept, throughput),
        nominal_optimum=exact.plan(offered).score,
        load=load,
        capacity_scale=scale,
        throughput=throughput,
    )


class OutputLatencies:
    """Latencies of the latest batches and of the measured part of a run.

    `targets` are in seconds by output, `differ` says whether outputs of the whole network have different ones.
    """

    def __init__(self, targets: Mapping[str, float], *, differ: bool) -> None:
        self._targets = targets
        self._differ = differ
        self._timelines: dict[str, Timeline[Sketch]] = {name: Timeline(Sketch) for name in targets}
        self._measured = {name: Sketch() for name in targets}

    def add(self, query: str, ended_seconds: float, found: Mapping[str, Sketch], *, is_measured: bool) -> None:
        """Take in what a batch delivered, by output."""
        for name, sketch in found.items():
            if name in self._timelines and sketch.count:
                for latest in self._timelines[name].at(query, int(ended_seconds)):
                    latest.merge(sketch)
                if is_measured:
                    self._measured[name].merge(sketch)

    def now(self) -> dict[str, Latency]:
        """Of the latest batches; nothing where all outputs have one target, which the job's own latency shows."""
        if not self._differ:
            return {}
        found = {}
        for name, timeline in self._timelines.items():
            end = timeline.end()
            latest = Sketch() if end is None else timeline.latest(end)[0]
            found[name] = latest.latency(self._targets[name])
        return found

    def measured(self) -> dict[str, Latency]:
        """Of the measured part."""
        return {name: sketch.latency(self._targets[name]) for name, sketch in self._measured.items()}


class Deadlines:
    """Counts results in time and late, by stream; `overrides` are seconds by `stream/partition`.

    A result knows the queue its tuple came from as long as operators pass Floodway's columns on. Where it does not (an
    aggregate, another node), it is judged by the strictest deadline of the streams above its output.
    """

    def __init__(self, network: Network, overrides: Mapping[str, float] | None = None) -> None:
        self._network = network
        self._overrides = dict(overrides or {})
        self._above = {name: _strictest(network, out.source) for name, out in network.outputs.items()}
        self.in_time: Counter[str] = Counter()
        self.late: Counter[str] = Counter()

    def observe(self, report: FragmentReport) -> float | None:
        """Count what a batch delivered; its miss ratio, None if no result with a deadline came."""
        in_time = late = 0
        for output, written in report.delivered.items():
            if output not in self._above:
                continue
            for stream, met, missed in self._judge(output, written, report.ended_seconds):
                self.in_time[stream] += met
                self.late[stream] += missed
                in_time, late = in_time + met, late + missed
        return late / (in_time + late) if in_time + late else None

    def _judge(self, output: str, written: Written, now: float) -> Iterable[tuple[str, int, int]]:
        queues = written.queues or ("",) * len(written.tuples)
        for queue, arrival_ms, tuples in zip(queues, written.arrival_ms.tolist(), written.tuples.tolist(), strict=True):
            stream, seconds = self._deadline(queue) if queue else self._above[output]
            if seconds is None or arrival_ms < 0:
                continue
            late = now - arrival_ms / 1e3 > seconds
            yield stream, 0 if late else tuples, tuples if late else 0

    def _deadline(self, queue: str) -> tuple[str, float | None]:
        location, _, partition = queue.rpartition("/")
        stream = location.partition("->")[0]
        known = self._network.streams.get(stream)
        return stream, self._overrides.get(f"{stream}/{partition}", known.deadline if known else None)

    def to_dict(self, lines: Iterable[LedgerLine]) -> dict[str, Any]:
        """Per stream with a deadline: in time, late, purged by the cleaner; miss ratio without and with the purged."""
        purged: Counter[str] = Counter()
        for line in lines:
            if line.reason == Reason.CLEANER:
                purged[line.at.partition("->")[0]] += line.dropped
        named = {name.partition("/")[0] for name in self._overrides}
        body: dict[str, Any] = {}
        for name, stream in self._network.streams.items():
            if stream.deadline is None and name not in named:
                continue
            met, late, gone = self.in_time[name], self.late[name], purged[name]
            body[name] = {
                "deadline": stream.deadline,
                "in_time": met,
                "late": late,
                "purged": gone,
                "miss_ratio": late / (met + late) if met + late else 0.0,
                "miss_ratio_with_purged": (late + gone) / (met + late + gone) if met + late + gone else 0.0,
            }
        return body


def _strictest(network: Network, source: str) -> tuple[str, float | None]:
    """The stream with the tightest deadline of those that a producer's tuples come from."""
    above, waiting = set[str](), [source]
    while waiting:
        name = waiting.pop()
        if name in network.streams:
            above.add(name)
        else:
            waiting += network.operators[name].inputs
    deadlines = {name: network.streams[name].deadline for name in sorted(above)}
    known = {name: math.inf if seconds is None else seconds for name, seconds in deadlines.items()}
    strictest = min(known, key=known.__getitem__)
    return strictest, deadlines[strictest]
