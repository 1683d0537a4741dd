"""`floodway.shed` on a job like a user's against the filter that one writes by hand, tuned to the same latency.

Broker, sender and Spark share the machine. The sliding job of `kafka_job.py` is offered a multiple of its capacity that
calibration finds; ours and the filter take turns on the same load, in the same warm process. The filter begins with the
share that ours kept in the turn before it and is tuned after every turn so that its mean latency is that of ours:

    P = a / (1 - g),  g = (s + c k) r     a fixed k of the rate r leads to batches of that length, so
    dk = (g' - g) / (c r)                 for the g' of the wanted length

What the filter would have processed at exactly the latency of ours follows from the same dk: r (k + dk).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import Any
from uuid import uuid4

from floodway.control.base import BATCH_SHARE
from floodway.experiments.bench.kafka_job import BatchFigures, KafkaBatch, by_hand, drained, plain, run, sliding
from floodway.experiments.bench.kafka_load import Sender, create_topic, fill
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import BenchError, Frame, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.spark.shed.shed import shed

QUICK_TARGETS, ALL_TARGETS = (3.0,), (3.0, 2.0, 5.0)
"""In seconds; each benchmark is of one load, so that none takes more than some ten minutes."""
REPEATS = 3
SIZES = (20_000, 80_000)
WARM_BATCHES, MEASURED_BATCHES = 15, 5
REFINEMENTS = 2
"""A capacity that is measured beside nothing is too large: sender and broker share the machine."""

GOAL_SHARE, GOAL_LATENCY, TUNED = 0.95, 0.05, 0.03
TUNING_STEP = 0.1
NO_OVERLOAD = 0.97
"""A run that keeps more than this share compares nothing: its calibration was disturbed."""

SLIDE_MS, HEAVY_SLIDE_MS, HEAVY = 500, 250, 3.0
"""From this overload on there are twice as many windows: sender, broker and reader must leave something to the job."""

STEP_BATCHES = 5
QUIET = 0.5
LATEST = {"startingOffsets": "latest"}


@dataclass(frozen=True, slots=True)
class Capacity:
    """Seconds of a batch whatever it holds, and per record."""

    overhead: float
    cost: float

    def rate(self, target: float) -> float:
        """Records per second that batches of T / 1.5 process."""
        period = target / BATCH_SHARE
        if self.overhead > 0.75 * period:
            raise BenchError(
                f"an empty batch takes {self.overhead:.2f} s here, most of the {period:.2f} s that the target allows",
                hint="Run on a quieter machine",
            )
        return (period - self.overhead) / self.cost / period

    def keep_change(self, latency: float, wanted: float, rate: float) -> float:
        """By how much a fixed keep must change so that the mean latency becomes the wanted one.

        >>> round(Capacity(0.5, 1e-5).keep_change(2.0, 3.0, 100_000.0), 3)
        0.125
        """
        before, after = (1.0 - self.overhead * BATCH_SHARE / seconds for seconds in (latency, wanted))
        return (after - before) / (self.cost * rate)


@dataclass(frozen=True)
class Bench:
    """Everything that the benchmarks below share."""

    work: Workbench
    servers: str
    topic: str
    load: Sender
    slide_ms: int
    capacity: Capacity

    def stream(self, protect: Callable[[Frame], Frame]) -> Frame:
        """The job on what arrives from now on."""
        return sliding(self.work, self.servers, self.topic, protect, LATEST, self.slide_ms)

    def protected(self, name: str, target: float) -> Callable[[Frame], Frame]:
        """The one line."""
        return shed(name, target_latency=target, mode="enforce", state_dir=str(self.work.folder / "state"))


def against_filter(
    overload: float, *, long: bool, progress: Progress, servers: str, conf: Mapping[str, str]
) -> BenchResult:
    """Records processed at the same latency, for every target."""
    targets, repeats = (ALL_TARGETS, REPEATS) if long else (QUICK_TARGETS, 1)
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    with _bench("bench-shed", servers, conf, overload) as bench:
        for number, target in enumerate(targets):
            name = f"{overload:g} × capacity, target {target:g} s"
            try:
                found[name] = _cell(bench, overload, target, repeats)
            except BenchError as error:  # the other cells took minutes
                failed[name] = str(error)
            progress((number + 1) / len(targets))
        capacity = bench.capacity
    if not found:
        raise BenchError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    worst = min(found.values(), key=lambda cell: cell["ratio"])
    away = max(abs(cell["latency over target"] - 1.0) for cell in found.values())
    return BenchResult(
        id=f"shed-kafka-{overload:g}",
        ours=worst["processed (records/s)"],
        peer=worst["filter at the same latency (records/s)"],
        ratio=worst["ratio"],
        goal=f"ours / peer >= {GOAL_SHARE:g} and mean latency within {GOAL_LATENCY:.0%} of the target, in each cell",
        holds=not failed and worst["ratio"] >= GOAL_SHARE and away <= GOAL_LATENCY,
        unit="records/s, the cell with the least ratio",
        detail={
            "peer": "pmod(xxhash64(topic, partition, offset), 1000) < k, tuned to the latency of ours",
            "farthest mean latency from its target": rounded(away),
            **found,
            **failed,
            "calibration": {"seconds a batch": rounded(capacity.overhead), "µs a record": rounded(capacity.cost * 1e6)},
        },
    )


def step(overload: float, *, long: bool, progress: Progress, servers: str, conf: Mapping[str, str]) -> BenchResult:
    """Batches until the keep is within a tenth of its final value, after a step from half the capacity."""
    targets, repeats = (ALL_TARGETS, REPEATS) if long else (QUICK_TARGETS, 1)
    found: dict[str, list[int]] = {}
    with _bench("bench-step", servers, conf, overload) as bench:
        for number, target in enumerate(targets):
            needed = [_stepped(bench, f"step-{number}-{turn}", overload, target) for turn in range(repeats)]
            found[f"{overload:g} × capacity, target {target:g} s"] = needed
            progress((number + 1) / len(targets))
    most = max(median(needed) for needed in found.values())
    return BenchResult(
        id=f"shed-step-{overload:g}",
        ours=float(most),
        peer=float(STEP_BATCHES),
        ratio=rounded(STEP_BATCHES / max(most, 1)),
        goal=f"90% of the final keep within {STEP_BATCHES} batches",
        holds=most <= STEP_BATCHES,
        unit="batches after the one that meets the step, the slowest cell",
        detail={"peer": "the goal", **{name: str(needed) for name, needed in found.items()}},
    )


kafka_light, kafka_double, kafka_fourfold = (partial(against_filter, load) for load in (1.3, 2.0, 4.0))
step_light, step_double, step_fourfold = (partial(step, load) for load in (1.3, 2.0, 4.0))


def _cell(bench: Bench, overload: float, target: float, repeats: int) -> dict[str, Any]:
    rate = overload * bench.capacity.rate(target)
    name, settle, measure = f"cell-{overload:g}-{target:g}", 4.0 * target, 5.0 * target
    bench.load.rate = QUIET * rate / overload
    # Learn at little load, then at full: what a job does that starts in overload is not measured here.
    _run(bench, bench.protected(name, target), 4.0 * target + settle, rate, at=4.0 * target)
    keep: float | None = None
    turns: list[tuple[BatchFigures, BatchFigures, float]] = []
    while len(turns) < repeats:
        ours = BatchFigures.of(_after(_run(bench, bench.protected(name, target), settle + measure, rate), settle))
        keep = ours.processed / ours.offered if keep is None else keep
        ran = _after(_run(bench, by_hand(keep), settle + measure, rate), settle)
        if any(batch.seconds > 2.0 * target for batch in ran):
            # A filter that keeps too much has ever longer batches: one who tunes it by hand would try a lower one.
            keep *= 1.0 - TUNING_STEP
            continue
        peer = BatchFigures.of(ran)
        change = bench.capacity.keep_change(peer.latency, ours.latency, rate)
        turns.append((ours, peer, peer.processed + change * peer.offered))
        keep = min(1.0, max(0.001, keep + change))
    share = median(ours.processed / ours.offered for ours, _, _ in turns)
    if share > NO_OVERLOAD:
        raise BenchError(
            f"{rate:,.0f} records/s were no overload: {share:.0%} were kept", hint="Run on a quieter machine"
        )
    ratios = [ours.processed / same for ours, _, same in turns]
    return {
        "ratio": rounded(median(ratios)),
        "ratios": [rounded(ratio) for ratio in ratios],
        "processed (records/s)": rounded(median(ours.processed for ours, _, _ in turns)),
        "filter at the same latency (records/s)": rounded(median(same for _, _, same in turns)),
        "latency over target": rounded(fmean(ours.latency for ours, _, _ in turns) / target),
        "latencies, ours": [rounded(ours.latency) for ours, _, _ in turns],
        "latencies, filter": [rounded(peer.latency) for _, peer, _ in turns],
        "turns in which the filter was tuned": sum(abs(p.latency / o.latency - 1.0) <= TUNED for o, p, _ in turns),
        "swing of batches, ours": rounded(median(ours.swing for ours, _, _ in turns)),
        "swing of batches, filter": rounded(median(peer.swing for _, peer, _ in turns)),
        "offered (records/s)": rounded(median(ours.offered for ours, _, _ in turns)),
    }


def _stepped(bench: Bench, name: str, overload: float, target: float) -> int:
    rate = overload * bench.capacity.rate(target)
    bench.load.rate = QUIET * rate / overload
    quiet = 4.0 * target
    ran = _run(bench, bench.protected(name, target), quiet + 12.0 * target, rate, at=quiet)
    return batches_until(ran, ran[0].started + quiet)


def batches_until(ran: list[KafkaBatch], at: float) -> int:
    """Batches after the one that meets a step at that time until two keeps in a row are at 90% of the last ones'.

    A batch meets the step if it begins after it, and the one before did too: it holds what came since.
    """
    after = [batch for before, batch in pairwise(ran) if before.started >= at]
    if len(after) < 2 * STEP_BATCHES:
        raise BenchError(f"only {len(after)} batches ended after the step", hint="Run on a quieter machine")
    final = fmean(batch.keep for batch in after[-STEP_BATCHES:])
    for number, (one, other) in enumerate(pairwise(after)):
        if one.keep < 1.0 and (one.keep + other.keep) / 2.0 >= 0.9 * final:
            return number
    return len(after)


def _run(
    bench: Bench, protect: Callable[[Frame], Frame], seconds: float, rate: float, *, at: float = 0.0
) -> list[KafkaBatch]:
    """Batches of that many seconds; the load is set to `rate` after `at` seconds."""

    def on_time(elapsed: float) -> None:
        if elapsed >= at:
            bench.load.rate = rate

    return run(bench.work, bench.stream(protect), bench.load, seconds, on_time)


def _after(ran: list[KafkaBatch], settle: float) -> list[KafkaBatch]:
    return [batch for batch in ran if batch.started >= ran[0].started + settle]


@contextmanager
def _bench(name: str, servers: str, conf: Mapping[str, str], overload: float) -> Iterator[Bench]:
    topic = f"floodway-{name}-{uuid4().hex[:8]}"
    create_topic(servers, topic)
    with workbench(name, conf) as work, Sender(servers, topic) as load:
        slide_ms = SLIDE_MS if overload < HEAVY else HEAVY_SLIDE_MS
        yield Bench(work, servers, topic, load, slide_ms, _calibrated(work, servers, load, overload, slide_ms))


def _calibrated(work: Workbench, servers: str, load: Sender, overload: float, slide_ms: int) -> Capacity:
    """The capacity beside a sender and a broker that are busy with that many times as much.

    Before that the job runs on several times as many records: until Spark's code is compiled, everything takes twice
    as long, and twice such a capacity would be no overload.
    """
    _drained(work, servers, SIZES[1], WARM_BATCHES, slide_ms)
    found = _measured(work, servers, slide_ms)
    for _ in range(REFINEMENTS):
        load.rate = overload * found.rate(QUICK_TARGETS[0])
        found = _measured(work, servers, slide_ms)
    return found


def _measured(work: Workbench, servers: str, slide_ms: int) -> Capacity:
    """From ready records, in batches of two sizes."""
    small, large = (_drained(work, servers, size, MEASURED_BATCHES, slide_ms) for size in SIZES)
    cost = (large - small) / (SIZES[1] - SIZES[0])
    if cost <= 0.0:
        raise BenchError("a larger batch took no longer than a small one", hint="Run on a quieter machine")
    return Capacity(max(0.0, small - cost * SIZES[0]), cost)


def _drained(work: Workbench, servers: str, size: int, batches: int, slide_ms: int) -> float:
    """The median batch of this many records, in seconds."""
    topic = f"floodway-calibration-{uuid4().hex[:8]}"
    create_topic(servers, topic)
    fill(servers, topic, batches * size)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(size)}
    ran = drained(work, sliding(work, servers, topic, plain, options, slide_ms))
    return median(batch.seconds for batch in ran[1:])
