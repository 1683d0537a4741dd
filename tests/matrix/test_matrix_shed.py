"""The one line's contract, on whatever Spark is installed, Classic or Connect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.control.base import Decision, Observation, State
from floodway.errors import InputError, MissingExtraError
from floodway.job.decision import write_mode
from floodway.job.ledger.facts import BatchFacts, Rule
from floodway.job.status.status import Status, Totals
from floodway.job.store.line_log import KeptLines
from floodway.spark.shed.recovery.fate import fate, missing
from floodway.spark.shed.shed import Shedder
from floodway.spark.source import register

PATIENCE_SECONDS = 240.0
ROWS = 2000


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"gave up waiting for {what}")
        time.sleep(0.05)


@dataclass
class Job:
    """A query over one JSON file a batch into Parquet, with a shed at a fixed keep."""

    spark: SparkSession
    folder: Path
    options: dict[str, Any]
    before: tuple[str, ...] = ("*",)
    """What the job selects before the shed."""
    fed: int = 0
    query: Any = None

    def line(self) -> Shedder:
        """The one line, as the job has it."""
        return floodway.shed(
            "clicks",
            target_latency="2s",
            state_dir=str(self.folder / "state"),
            # Of a decision that nobody renewed in time, because the machine stood still, nothing is seen here.
            **{"mode": "enforce", "expires_after": "never", **self.options},
        )

    def start(self, after: Callable[[DataFrame], DataFrame] = lambda df: df) -> None:
        self.shed = self.line()
        source = (
            self.spark.readStream.schema("id long, user int, value double, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "in"))
        )
        self.query = (
            after(source.selectExpr(*self.before).withWatermark("ts", "1 hour").transform(self.shed))
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def feed(self) -> None:
        """One more file, processed and accounted for."""
        first = self.fed * ROWS
        lines = [
            json.dumps({"id": i, "user": i % 50, "value": i % 10, "ts": f"2026-01-01T{i // ROWS:02d}:00:00Z"})
            for i in range(first, first + ROWS)
        ]
        draft = self.folder / "draft"
        draft.write_text("\n".join(lines))
        draft.rename(self.folder / "in" / f"part-{self.fed:05d}.json")
        self.fed += 1
        self.query.processAllAvailable()
        wait_for("the account of the last batch", lambda: self.totals().offered == self.fed * ROWS)

    def status(self) -> Status | None:
        return self.shed.files.read_status()

    def totals(self) -> Totals:
        status = self.status()
        return Totals() if status is None else status.totals

    def kept(self) -> set[int]:
        return {row.id for row in self.spark.read.parquet(str(self.folder / "out")).select("id").collect()}

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def job(any_spark: SparkSession, folder: Path) -> Any:
    made = Job(any_spark, folder, {"identity": "id", "controller": Half()})
    yield made
    made.stop()


@dataclass(frozen=True)
class Half(floodway.Controller[State]):
    """Keeps half of what waits."""

    name = "half"
    signal = "batch_seconds"

    def initial(self) -> State:
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        return state, Decision(0.5 * observation.waiting, 1.0, "half")


@dataclass(frozen=True)
class Tenth(Half):
    """Keeps a tenth."""

    name = "tenth"

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        return state, Decision(0.1 * observation.waiting, 1.0, "tenth")


def feed_until_dropping(job: Job) -> None:
    while job.totals().kept == job.totals().offered:
        job.feed()


def test_drops_are_counted_to_the_tuple(job: Job) -> None:
    job.start()
    job.feed()
    assert job.totals().kept == ROWS
    feed_until_dropping(job)
    job.feed()
    totals = job.totals()
    assert totals.offered == totals.kept + sum(totals.dropped.values())
    assert len(job.kept()) == totals.kept < totals.offered
    status = job.status()
    assert status is not None and status.decision_seen


def test_a_replay_drops_the_same_tuples(job: Job) -> None:
    job.start()
    job.feed()
    feed_until_dropping(job)
    job.feed()
    before = job.kept()
    job.stop()
    last = max(int(path.name) for path in (job.folder / "checkpoint" / "commits").glob("[0-9]*"))
    # Without the commit Spark repeats the batch, and without its entry the file sink writes it once more.
    for log in (job.folder / "checkpoint" / "commits", job.folder / "out" / "_spark_metadata"):
        for path in (log / f"{last}", log / f".{last}.crc"):
            path.unlink(missing_ok=True)
    job.start()
    job.query.processAllAvailable()
    assert job.kept() == before and len(before) < job.fed * ROWS


def test_the_kill_switch_keeps_everything(job: Job) -> None:
    job.start()
    job.feed()
    feed_until_dropping(job)
    write_mode(job.shed.files.store, "off")
    job.feed()
    in_force_us = job.shed.loop.control.latest.valid_from_us
    wait_for("the mode to be in force", lambda: job.shed.loop.clock_us() >= in_force_us)
    kept = job.totals().kept
    job.feed()
    status = job.status()
    assert status is not None and status.mode == "off"
    assert job.totals().kept == kept + ROWS


@pytest.mark.parametrize(
    "options",
    [{"utility": "value"}, {"key": "user"}, {"share_by": "if(id % 40 = 0, user, -1)"}],
    ids=lambda one: next(iter(one)),
)
def test_what_is_kept_is_chosen(job: Job, options: dict[str, Any]) -> None:
    job.options = {"controller": Half(), **options}
    job.start()
    job.feed()
    feed_until_dropping(job)
    job.feed()
    last = {i for i in job.kept() if i // ROWS == job.fed - 1}
    assert 0 < len(last) < ROWS
    if "utility" in options:
        gone = set(range((job.fed - 1) * ROWS, job.fed * ROWS)) - last
        assert min(i % 10 for i in last) >= max(i % 10 for i in gone) - 1
    elif "share_by" in options:
        # Five users with ten tuples each: below their share also if a late batch keeps a quarter of its plan.
        assert {i for i in range((job.fed - 1) * ROWS, job.fed * ROWS) if i % 40 == 0} <= last
    else:
        assert all((i % 50 in {j % 50 for j in last}) == (i in last) for i in last)
        assert len({i % 50 for i in last}) * (ROWS // 50) == len(last)


@pytest.mark.parametrize("share_by", [None, "user % 2"])
def test_the_first_of_every_key_are_kept(job: Job, share_by: str | None) -> None:
    job.options = {"identity": "id", "controller": Tenth(), "keep_rare": 1, "rare_by": "user", "share_by": share_by}
    job.start()
    job.feed()
    feed_until_dropping(job)
    job.feed()
    last = {i for i in job.kept() if i // ROWS == job.fed - 1}
    assert {i % 50 for i in last} == set(range(50)) and len(last) < ROWS / 2
    status = job.status()
    assert status is not None and status.shed is not None and status.shed.first >= 50


def test_what_waits_behind_a_position_is_skipped(job: Job) -> None:
    """The positions are those of a file's columns: there is no broker on every version."""
    job.options = {"controller": Half(), "skip_when_lag": 100}
    job.before = ("'clicks' AS topic", "CAST(id % 2 AS int) AS partition", "id AS offset", "*")
    job.start()
    job.feed()
    control = job.shed.loop.control
    latest = control.put(replace(control.latest, skip={"clicks": (2 * ROWS, ROWS + 500)}, mode="enforce"))
    wait_for("the decision", lambda: job.shed.loop.clock_us() > latest.valid_from_us)
    job.feed()
    gone = set(range(ROWS, 2 * ROWS)) - job.kept()
    assert {i for i in range(ROWS, 2 * ROWS) if i % 2 == 0 or i < ROWS + 500} <= gone
    assert job.totals().dropped["lag"] == ROWS // 2 + 250


def test_what_is_older_than_its_age_is_skipped(job: Job) -> None:
    job.options = {"identity": "id", "max_age": "1h", "timestamp": "at"}
    job.before = ("*", "if(id % 4 = 0, now(), timestamp'2026-01-01 00:00:00') AS at")
    job.start()
    job.feed()
    assert job.kept() == set(range(0, ROWS, 4))
    assert job.totals().dropped == {"stale": ROWS * 3 // 4}


def test_the_windows_that_a_backfill_must_fill_are_found(any_spark: SparkSession) -> None:
    rule = Rule((), window=floodway.WindowDrop("ts", "20 seconds", "10 seconds").shape, time_column="ts", salt=3)
    facts = BatchFacts("q", 0, 0, "enforce", 0, 0, 0, 0, epochs=((-(1 << 62), 400_000, 400_000),))
    windows = missing(rule, facts)
    assert windows is not None
    events = any_spark.range(600).select(fn.timestamp_seconds("id").alias("ts"))
    found = events.select(fate(events, rule, facts).alias("kept"), fn.size(windows).alias("missing")).collect()
    # What was dropped is missing from both of its windows; of what was kept a part is missing from one.
    assert {(row.kept, row.missing) for row in found} == {(False, 2), (True, 1), (True, 0)}


def test_groups_keep_what_an_accuracy_needs(job: Job) -> None:
    target = floodway.Accuracy("sum(value)", by="if(user < 2, user, 2)", within=0.1, share=1.0)
    job.options = {"identity": "id", "controller": Tenth(), "accuracy": target}
    job.start()
    job.feed()
    feed_until_dropping(job)
    job.feed()
    last = {i for i in job.kept() if i // ROWS == job.fed - 1}
    small = [i for i in last if i % 50 < 2]
    assert len(small) / len(last) > 3 * 2 / 50 and ROWS / 10 < len(last) < ROWS
    status = job.status()
    assert status is not None and status.accuracy is not None and status.accuracy.held


def test_estimates_from_weights_are_near_the_truth(job: Job) -> None:
    job.start()
    job.feed()
    feed_until_dropping(job)
    job.feed()
    found = job.spark.read.parquet(str(job.folder / "out")).agg(fn.sum("_weight")).first()
    assert found is not None
    assert found[0] == pytest.approx(job.fed * ROWS, rel=0.05)


def test_whole_windows_are_kept_or_dropped(any_spark: SparkSession, folder: Path) -> None:
    job = Job(any_spark, folder, {"controller": Half(), "window": floodway.WindowDrop("ts", "1 hour")})

    def counted(df: DataFrame) -> DataFrame:
        grouped = df.groupBy(fn.window("ts", "1 hour")).count()
        return grouped.transform(job.shed.kept_windows()).select(fn.col("window.start").alias("id"), "count")

    job.start(counted)
    for _ in range(12):
        job.feed()
    job.stop()
    rows = any_spark.read.parquet(str(folder / "out")).collect()
    assert rows and {row["count"] for row in rows} == {ROWS}


def test_the_source_needs_a_newer_version(any_spark: SparkSession) -> None:
    if tuple(map(int, any_spark.version.split(".")[:2])) >= (4, 2):
        register(any_spark)
        return
    with pytest.raises(MissingExtraError, match=r"this needs Spark 4\.2 or later.*floodway\.shed"):
        register(any_spark)


@pytest.mark.parametrize("module", ["audit.shed", "shed.recovery.backfill", "shed.recovery.recover"])
def test_what_a_shed_needs_later_is_there(module: str) -> None:
    """An audit and a backfill run beside the Spark of the job."""
    assert import_module(f"floodway.spark.{module}")


def test_applying_a_shed_twice_is_harmless(job: Job) -> None:
    job.start()
    source = job.spark.readStream.format("rate").load().selectExpr("value as id", "timestamp as ts")
    source.transform(job.line())  # a pipeline whose code is evaluated once more, and never started
    job.feed()
    assert job.totals().offered == ROWS


def test_a_sample_of_what_was_dropped_or_why_there_is_none(job: Job) -> None:
    job.options = {**job.options, "side_output": 3}
    if tuple(map(int, job.spark.version.split(".")[:2])) < (4, 2):
        with pytest.raises(InputError, match=r"side_output= needs Spark 4\.2 or later"):
            job.start()
        return
    job.start()
    job.feed()
    feed_until_dropping(job)
    lines = KeptLines(job.shed.files.store, "dropped")
    wait_for("the sample, which is written after the status", lambda: any(lines.read()))
    assert not {json.loads(line["tuple"])["id"] for line in lines.read()} & job.kept()
