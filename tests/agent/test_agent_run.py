"""Real Spark under real overload: every tuple is accounted for; with --run-slow, latency and mix are as planned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from floodway.agent.loop.feeds import Feed, Feeder
from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.loop.steering import Steered, Steering
from floodway.job.decision import Mode, write_mode
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.options.values import Target
from floodway.job.places import ShedFiles
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.audit.run import audit
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.profiles import DEFAULT_SCHEMA
from floodway.spark.query.layout import RunLayout
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

CHAIN = """
version: 1
name: chain
streams: {s: {max_rate: 2000}}
nodes: {A: {cpu: 1.0}}
operators: {work: {node: A, from: s, run: 'tests.agent.waiting_service:call_1ms', cost: 0.001}}
outputs: {q: {from: work}}
"""
BUSY_CHAIN = CHAIN.replace("run: 'tests.agent.waiting_service:call_1ms'", "kind: delay")
"""The papers' operator, where latencies are judged: it takes a CPU, which a test beside others does not have."""

SPLIT = """
version: 1
name: split-and-weights
streams: {s1: {max_rate: 600}, s2: {max_rate: 200}}
nodes: {A: {cpu: 1.0}}
operators:
  shared: {node: A, from: s1, kind: delay, cost: 0.0005}
  cheap: {node: A, from: shared, kind: delay, cost: 0.0005}
  dear: {node: A, from: shared, kind: delay, cost: 0.002}
  other: {node: A, from: s2, kind: delay, cost: 0.001}
outputs:
  q1: {from: cheap, weight: 2}
  q2: {from: dear}
  q3: {from: other, weight: 3}
"""

CAPACITY = 1000.0
"""Tuples/s that one task of the chain can process at the most."""


def run(
    spark: Session,
    network: Network,
    root: Path,
    feeds: Mapping[str, Feed],
    *,
    seconds: float,
    target: float = 2.0,
    settle: float | None = None,
    mode: str = "enforce",
) -> RunReport:
    options = RunOptions(
        seconds=seconds,
        root=root,
        mode="enforce" if mode == "enforce" else "off" if mode == "off" else "observe",
        target=Target(target),
        feeds=feeds,
        settle_seconds=seconds / 2 if settle is None else settle,
    )
    report = run_network(network, options, spark)
    assert report.differences == ()
    assert audit(network, RunLayout(root)).differences == ()
    return report


@pytest.fixture(scope="module")
def warm(spark: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session that has compiled its plans and started its workers: what is measured is the steady state."""
    network = parse_network(BUSY_CHAIN)
    run(spark, network, tmp_path_factory.mktemp("warm"), {"s": Feed(rate=2 * CAPACITY)}, seconds=12)
    return spark


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize("target", [1.0, 2.0, 3.0])
def test_mean_latency_stays_at_the_target_under_double_load(warm: Session, tmp_path: Path, target: float) -> None:
    feeds = {"s": Feed(rate=2 * CAPACITY)}
    report = run(warm, parse_network(BUSY_CHAIN), tmp_path, feeds, seconds=12 + 5 * target, target=target)
    assert report.latency.mean == pytest.approx(target, rel=0.1)
    assert report.to_dict()["dropped"]["s"]["shedder"] > 0


@pytest.mark.timing
@pytest.mark.slow
def test_blocks_that_are_never_read_are_accounted_for_too(warm: Session, tmp_path: Path) -> None:
    feeds = {"s": Feed(rate=2 * CAPACITY)}
    options = RunOptions(seconds=20, root=tmp_path, target=Target(2.0), feeds=feeds, settle_seconds=10, drop="range")
    report = run_network(parse_network(BUSY_CHAIN), options, warm)
    assert report.differences == () and audit(parse_network(BUSY_CHAIN), RunLayout(tmp_path)).differences == ()
    assert report.latency.mean == pytest.approx(2.0, rel=0.15)
    assert report.to_dict()["dropped"]["s"]["shedder"] > 0


@pytest.mark.timing
@pytest.mark.slow
def test_without_protection_latency_diverges(warm: Session, tmp_path: Path) -> None:
    feeds = {"s": Feed(rate=2 * CAPACITY)}
    report = run(warm, parse_network(BUSY_CHAIN), tmp_path, feeds, seconds=12, mode="off")
    latencies = [point.latency_seconds for point in report.points if point.latency_seconds is not None]
    assert latencies[-1] > 2 * 2.0
    assert latencies[-1] > 2 * latencies[0]
    assert report.to_dict()["dropped"] == {}


@pytest.mark.timing
@pytest.mark.slow
def test_the_mix_is_the_best_for_the_capacity_there_was(warm: Session, tmp_path: Path) -> None:
    feeds = {"s1": Feed(rate=600), "s2": Feed(rate=200)}
    report = run(warm, parse_network(SPLIT), tmp_path, feeds, seconds=28, target=2.0)
    assert report.score >= 0.95 * report.optimum
    assert report.to_dict()["dropped"]["shared->dear"]["shedder"] > 0


@pytest.mark.timing
@pytest.mark.slow
def test_a_step_from_half_to_triple_load_settles_at_once(warm: Session, tmp_path: Path) -> None:
    step_at, target = 9.0, 2.0
    steps = f"{step_at}:{0.5 * CAPACITY},60:{3 * CAPACITY}"
    feeds = {"s": Feed(options=("--profile", "steps", "--steps", steps))}
    report = run(warm, parse_network(BUSY_CHAIN), tmp_path, feeds, seconds=27, target=target, settle=8)
    after = [point for point in report.points if point.seconds - point.batch_seconds > step_at]
    third = after[2].seconds
    settled = [point for point in after if point.seconds > max(step_at + 5.0, third)]
    latencies = sorted(p.latency_seconds or 0.0 for p in settled)
    print([round(latency, 2) for latency in latencies])
    # Medians and nine in ten, not means and extremes: one batch that the machine holds up says nothing of the control.
    assert len(settled) >= 8
    assert median(latencies) == pytest.approx(target, rel=0.15)
    assert latencies[len(latencies) * 9 // 10 - 1] < 1.5 * target


def run_until(
    spark: Session, root: Path, rate: float, reached: Callable[[list[LedgerLine]], object], mode: Mode = "enforce"
) -> RunReport:
    """Run the chain until its batches on the ledger, as far as anything came, are what a test waits for."""
    ended = Event()

    def look(status: Status) -> None:
        if reached(batches(root)):
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=root, target=Target(1.0), mode=mode, settle_seconds=0.0,
        feeds={"s": Feed(rate=rate)}, progress=look, ended=ended,
    )  # fmt: skip
    report = run_network(parse_network(CHAIN), options, spark)
    assert ended.is_set(), batches(root)
    assert report.differences == () and audit(parse_network(CHAIN), RunLayout(root)).differences == ()
    return report


def batches(root: Path) -> list[LedgerLine]:
    """The lines of what was offered to the chain."""
    return [line for line in Ledger(RunLayout(root).store).lines() if line.at == "s" and line.offered]


def test_overload_is_shed_and_every_tuple_accounted_for(
    spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing: list[str] = []
    feed = Feeder.start

    def start(feeder: Feeder) -> None:
        doing.extend(query.status["message"] for query in spark.streams.active)
        feed(feeder)

    monkeypatch.setattr(Feeder, "start", start)
    report = run_until(spark, tmp_path, 2 * CAPACITY, lambda lines: any(line.dropped for line in lines))
    body = report.to_dict()
    assert doing and not any(message.startswith("Initializing") for message in doing), "the load began before the query"
    assert body["score"] <= body["optimum"]
    assert body["dropped"]["s"]["shedder"] > 0
    assert body["offered"]["s"] == body["kept"]["s"] + sum(body["dropped"]["s"].values())


def test_without_loss_a_burst_is_processed_to_the_last_tuple(
    spark: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst comes after a look at the run, and once more if it was over before the next one."""
    burst, brought, told, limits, ended = 6000, 0, list[Status](), list[int](), Event()
    decide = Steering.decide

    def noted(steering: Steering, *arguments: Any) -> Steered:
        steered = decide(steering, *arguments)
        limits.append(steered.decision.limit("s") or 0)
        return steered

    monkeypatch.setattr(Steering, "decide", noted)
    network = parse_network(CHAIN)
    log = create_log(RunLayout(tmp_path).stream(network, "s"), DEFAULT_SCHEMA, stream="s")
    rows = pa.table({name: pa.nulls(burst, log.schema.field(name).type) for name in log.schema.names})

    def is_told() -> bool:
        """Whether a status has said that far more waits than a batch takes, and when it will be done."""
        behind = [status.behind for status in told if status.behind is not None and status.behind.catch_up_seconds]
        words = any("tuples wait: caught up in about" in status.reason for status in told)
        return words and max((one.tuples for one in behind), default=0) > 2.0 * CAPACITY

    def look(status: Status) -> None:
        nonlocal brought
        told.append(status)
        done = sum(line.offered for line in batches(tmp_path)) >= brought
        if done and is_told():
            ended.set()
        elif done:
            with LogWriter(log.path) as writer:
                writer.append(rows)
            brought += burst

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(3.0), lossless=True, settle_seconds=0.0,
        feeds={"s": Feed(rate=0.001)}, progress=look, ended=ended,
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    body = report.to_dict()
    assert body["dropped"] == {} and body["offered"]["s"] == body["kept"]["s"] >= brought > 0
    assert 0 < max(line.offered for line in batches(tmp_path)) <= max(limits) and min(limits) > 0
    assert is_told() and told[-1].keep == 1.0


@pytest.mark.parametrize(
    ("skip", "mode"),
    [({"max_age": 600.0}, "enforce"), ({"skip_when_lag": 700}, "enforce"), ({"max_age": 600.0}, "observe")],
    ids=["stale", "lag", "observe"],
)
def test_what_waited_during_downtime_is_skipped_and_counted(
    spark: Session, tmp_path: Path, skip: dict[str, Any], mode: Mode
) -> None:
    """Three thousand tuples of an hour ago, and five hundred of now: nothing of the old ones is read."""
    reason, network = "stale" if "max_age" in skip else "lag", parse_network(CHAIN)
    now_us = time.time_ns() // 1000
    log = create_log(RunLayout(tmp_path).stream(network, "s"), DEFAULT_SCHEMA, stream="s")
    with LogWriter(log.path) as writer:
        for count, age_us in ((3000, 3600 * 10**6), (500, 0)):
            rows = pa.table({name: pa.nulls(count, log.schema.field(name).type) for name in log.schema.names})
            writer.append(rows, arrival=now_us - age_us)
    left = 500 if reason == "stale" else 700
    would = f"enforcing would skip {3500 - left:,} tuples"
    ended, told = Event(), set[str]()

    def look(status: Status) -> None:
        told.add(status.reason)
        seen = mode == "enforce" or any(would in text for text in told)
        if seen and sum(line.offered for line in batches(tmp_path) if line.reason == "shedder") >= 3500:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(60.0), settle_seconds=0.0,
        feeds={"s": Feed(rate=0.001)}, progress=look, ended=ended, lossless=True, mode=mode, **skip,
    )  # fmt: skip
    report = run_network(network, options, spark)
    assert ended.is_set() and report.differences == () and audit(network, RunLayout(tmp_path)).differences == ()
    if mode == "observe":
        assert report.to_dict()["dropped"] == {} and Ledger(RunLayout(tmp_path).store).fold().total.kept["s"] >= 3500
        assert any("enforcing would take at most" in text for text in told)
        return
    body = report.to_dict()
    assert body["dropped"]["s"] == {reason: 3500 - left} and body["kept"]["s"] >= left
    (line,) = (line for line in Ledger(RunLayout(tmp_path).store).lines() if line.reason == reason)
    assert (line.batch, line.dropped) == (0, 3500 - left)


def test_the_mode_is_switched_while_running(spark: Session, tmp_path: Path) -> None:
    def switched(lines: list[LedgerLine]) -> bool:
        if lines and ShedFiles(tmp_path).read_mode() is None:
            write_mode(ShedFiles(tmp_path).store, "off")
        return bool(lines) and lines[-1].mode == "off"

    run_until(spark, tmp_path, 1.2 * CAPACITY, switched)
    lines = batches(tmp_path)
    modes = [line.mode for line in lines]
    assert modes[0] == "enforce" and modes[-1] == "off"
    assert modes == sorted(modes)  # one switch, no way back
    assert all(line.dropped == 0 for line in lines if line.mode == "off")


@pytest.mark.parametrize(("wish", "mode"), [('{"mode": "off"}', "off"), ('{"mode": "of', "observe")])
def test_a_wish_holds_from_the_first_batch_also_a_damaged_one(
    spark: Session, tmp_path: Path, wish: str, mode: str
) -> None:
    (tmp_path / "mode.json").write_text(wish)
    run_until(spark, tmp_path, 1.2 * CAPACITY, len)
    assert {(line.mode, line.dropped) for line in batches(tmp_path)} == {(mode, 0)}
    status = ShedFiles(tmp_path).read_status()
    said = [text for text in status.warnings if f"{tmp_path}/mode.json is damaged" in text] if status else []
    assert status is not None and (len(said), status.errors) == ((0, 0) if mode == "off" else (1, 1))


def test_observing_drops_nothing_and_says_what_it_would(spark: Session, tmp_path: Path) -> None:
    report = run_until(spark, tmp_path, 0.3 * CAPACITY, len, mode="observe")
    body = report.to_dict()
    assert body["dropped"] == {} and body["offered"] == body["kept"]
    assert {line.mode for line in batches(tmp_path)} == {"observe"}
