"""`floodway.shed` on real Spark: exact counts, replays that agree, modes, priorities, stateful queries."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import floodway
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.audit.shed import audit_shed
from floodway.spark.query.drops import hash_ppm, identity_columns
from floodway.spark.shed.checkpoints import noted_checkpoints
from floodway.spark.shed.checks import stands_on_source
from floodway.spark.shed.control_columns import ENFORCED, KEEP, live_row, with_control
from floodway.spark.shed.control_table import HIGHEST, LOWEST, Entry, Table
from floodway.spark.shed.open_batches import journaled_time
from floodway.spark.shed.shed import Shedder, shed
from floodway.spark.shed.window_drop import WindowDrop
from floodway.units import PPM
from tests.agent.waiting_service import waiting
from tests.patience import wait_until
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark
SCHEMA = "id long, user int, ts timestamp, value double"


def rows(first: int, count: int, second: int = 0) -> list[str]:
    return [
        json.dumps(
            {
                "id": i,
                "user": i % 20,
                "ts": f"2026-01-01T00:{(second + i % 10) // 60:02d}:{(second + i % 10) % 60:02d}Z",
                "value": float(i % 10),
            }
        )
        for i in range(first, first + count)
    ]


def _no_java(*given: object) -> None:
    raise Py4JError("constructor is not allowed")


def shed_only(df: DataFrame, shed: Shedder) -> DataFrame:
    return df.transform(shed)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    made = Stream(spark, tmp_path, SCHEMA, shed_only, {"identity": "id", "side_output": 5})
    yield made
    made.stop()


def slots(spark: SparkSession, first: int, count: int, salt: int) -> dict[int, int]:
    frame = spark.range(first, first + count)
    found = frame.select("id", hash_ppm(frame, fn.lit(salt).cast("bigint"), ["id"]).alias("slot")).collect()
    return {row.id: row.slot for row in found}


@pytest.mark.parametrize("samples", [5, None], ids=["counted beside the fate", "counted before and after the drop"])
def test_rate_changes_without_restart_counts_are_exact_and_replays_agree(
    spark: SparkSession, stream: Stream, samples: int | None
) -> None:
    stream.options["side_output"] = samples
    stream.follows = True
    stream.start()
    # None so high that a batch which comes early may keep everything (HIGHEST).
    for batch, keep in enumerate((1.0, 0.5, 0.25, 0.7, 0.7)):
        stream.keeps.append(keep)
        stream.feed(rows(batch * 2000, 2000))
    ledger = Ledger(stream.shed.files.store)
    lines = ledger.read()
    assert [line.offered for line in lines] == [2000] * 5
    # A run's first batch decides nothing; after that a decision holds from the next batch on.
    assert [line.plan for line in lines] == ["0", "0", "1", "2", "3"]
    for line, asked in zip(lines, [PPM, PPM, 500_000, 250_000, 700_000], strict=True):
        assert LOWEST * asked <= line.keep_ppm <= min(PPM, HIGHEST * asked)
    slot = slots(spark, 0, 10_000, stream.shed.settings.salt)
    for line in lines:
        kept = {row.id for row in stream.results[line.batch]}
        offered = range(line.batch * 2000, line.batch * 2000 + 2000)
        assert kept == {i for i in offered if slot[i] < line.keep_ppm}
        assert line.kept == len(kept)
        assert {row._weight for row in stream.results[line.batch]} == {1e6 / line.keep_ppm}
        assert len(kept) / 2000 == pytest.approx(line.keep_ppm / 1e6, abs=0.04)
    assert ledger.fold().differences() == []
    if samples:
        side_output = KeptLines(stream.shed.files.store, "dropped")
        wait_until(lambda: len(list(side_output.read())) >= 3 * samples, "the last sample, written after the ledger")
        dropped = list(side_output.read())
        assert len(dropped) == 3 * samples
        kept_ids = {row.id for batch in stream.results.values() for row in batch}
        assert not kept_ids & {json.loads(entry["tuple"])["id"] for entry in dropped}

    # The last batch is run again, as after a crash before its commit; meanwhile the decision has changed.
    first_run = {row.id for row in stream.results[4]}
    stream.stop()
    (stream.folder / "checkpoint" / "commits" / "4").unlink()
    (stream.folder / "checkpoint" / "commits" / ".4.crc").unlink(missing_ok=True)
    stream.shed.loop.control.put(another_entry(stream, keep_ppm=10_000))
    stream.settle()
    stream.results.clear()
    stream.start()
    stream.query.processAllAvailable()
    assert {row.id for row in stream.results[4]} == first_run
    stream.feed(rows(10_000, 2000))
    assert len(stream.results[5]) < 100
    assert Ledger(stream.shed.files.store).fold().differences() == []
    assert list(noted_checkpoints(stream.shed.files).values()) == [str(stream.folder / "checkpoint")]
    audited = audit_shed("test", stream.shed.files, time.time() + 60)
    assert (audited.differences, audited.batches) == ((), 6)


@pytest.mark.parametrize("options", [{}, {"share_by": "id % 3"}], ids=["hash", "share_by"])
def test_a_new_decision_compiles_no_new_code(spark: SparkSession, stream: Stream, options: dict[str, str]) -> None:
    stream.options.update(options)
    stream.start()
    jvm = spark._jvm
    assert jvm is not None
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []
    for batch, keep in enumerate((1.0, 0.5, 0.25, 0.8, 0.6)):
        stream.keeps.append(keep)
        stream.feed(rows(batch * 100, 100))
        counts.append(compiled.getCount())
    assert counts[-1] == counts[-3]


@pytest.mark.parametrize("options", [(), ("threshold", "tie_ppm"), ("quotas", "rare_ppm"), ("skip",), ("epochs",)])
def test_everything_is_compiled_and_the_decision_is_made_in_the_drivers_memory(
    spark: SparkSession, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Spark compiles no projection with more than a hundred fields, and copies what it does not compile."""
    columns = [fn.col("id").alias(name) for name in ("key", "value", "topic", "partition", "offset", "timestamp")]
    uri = (tmp_path / "control.json").as_uri()
    row = live_row(spark, uri)
    assert row is not None
    row.put(Table(Entry(0, 0)).encode())
    found = with_control(spark.range(10).select(*columns), uri, options)
    adaptive = "spark.sql.adaptive.enabled"
    before = spark.conf.get(adaptive)
    spark.conf.set(adaptive, "false")
    try:
        plan = found._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.set(adaptive, before or "true")
    heads = [line.partition("Project [")[0] for line in plan.splitlines() if " Project [" in line]
    assert heads and all("*(" in head for head in heads)
    filtered = found.filter(f"{ENFORCED} AND {KEEP} > 5")._jdf.queryExecution().optimizedPlan().toString()
    assert filtered.count("scalar-subquery") == 1, "each copy would be planned in every batch"
    in_subquery = plan.partition("Subquery")[2]
    assert "LocalTableScan" in in_subquery and "Scan text" not in in_subquery


def test_a_batch_of_which_nothing_is_left_was_dropped_by_its_decision(stream: Stream) -> None:
    """No tuple is left to tell which decision it was."""
    stream.options["side_output"] = None
    stream.start()
    for batch, keep in enumerate((1.0, 1e-6, 1e-6)):
        stream.keeps.append(keep)
        stream.feed(rows(batch * 100, 100))
    last = Ledger(stream.shed.files.store).read()[-1]
    time_us = journaled_time(LocalStore(stream.folder / "checkpoint"), last.batch)
    assert time_us is not None
    assert (last.offered, last.kept, last.mode) == (100, 0, "enforce")
    assert last.plan == str(stream.shed.loop.control.table.at(time_us).seq)
    assert last.keep_ppm < 10
    status = stream.shed.files.read_status()
    assert status is not None and status.decision_seen is True and status.errors == 0


def another_entry(stream: Stream, keep_ppm: int) -> Entry:
    return replace(stream.shed.loop.control.latest, keep_ppm=keep_ppm, budget=None, rate=None, base_us=None)


def test_modes_switch_while_running(stream: Stream) -> None:
    stream.keeps.append(0.3)
    stream.options["mode"] = "observe"
    stream.start()
    for batch in range(3):
        stream.feed(rows(batch * 1000, 1000))
    status = stream.shed.files.read_status()
    assert status is not None
    assert (status.mode, status.totals.dropped) == ("observe", {})
    assert 0.6 < status.would_drop < 0.8
    write_mode(stream.shed.files.store, "enforce")
    stream.feed(rows(3000, 1000))
    stream.feed(rows(4000, 1000))
    assert len(stream.results[3]) == 1000
    assert len(stream.results[4]) < 500
    write_mode(stream.shed.files.store, "off")
    stream.feed(rows(5000, 1000))
    stream.feed(rows(6000, 1000))
    assert len(stream.results[6]) == 1000
    wait_until(lambda: len(list(Ledger(stream.shed.files.store).read())) == 7)
    modes = [line.mode for line in Ledger(stream.shed.files.store).read()]
    assert modes == ["observe"] * 4 + ["enforce"] * 2 + ["off"]


def test_a_lost_control_file_changes_nothing_while_the_driver_lives(stream: Stream) -> None:
    stream.keeps.append(0.2)
    stream.start()
    for batch in range(2):
        stream.feed(rows(batch * 500, 500))
    stream.shed.files.store.remove("control.json")
    stream.feed(rows(1000, 500))
    stream.feed(rows(1500, 500))
    assert len(stream.results[2]) < 250 and len(stream.results[3]) < 250


def test_a_table_read_from_a_file_that_is_lost_or_torn_keeps_everything_and_the_query(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where Python is kept from Spark's classes, as some platforms do.
    monkeypatch.setattr("floodway.spark.shed.control_columns.LiveRow.__init__", _no_java)
    stream.keeps.append(0.2)
    stream.start()
    stream.feed(rows(0, 500))
    stream.feed(rows(500, 500))
    stream.shed.files.store.remove("control.json")
    stream.feed(rows(1000, 500))
    assert len(stream.results[2]) == 500
    stream.shed.files.store.write("control.json", b'{"version": 1, "hist')
    stream.feed(rows(1500, 500))
    assert len(stream.results[3]) == 500
    status = stream.shed.files.read_status()
    assert status is not None and status.decision_seen is False
    assert "do not find the decisions" in status.warnings[-1]
    stream.feed(rows(2000, 500))  # the loop has written it again
    assert len(stream.results[4]) < 250
    assert stream.query.exception() is None


def test_utility_keeps_the_most_valuable(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, SCHEMA, shed_only, {"identity": "id", "utility": "value * 2"}, keeps=[0.25])
    stream.start()
    for batch in range(4):
        stream.feed(rows(batch * 1000, 1000))
    kept = stream.results[3]
    stream.stop()
    assert {row.value for row in kept} == {7.0, 8.0, 9.0}
    by_value = {value: sum(row.value == value for row in kept) for value in (7.0, 8.0, 9.0)}
    assert by_value[8.0] == by_value[9.0] == 100
    assert len(kept) == pytest.approx(250, abs=30)
    assert all(row._weight == 1.0 for row in kept if row.value > 7.0)
    assert stream.found_again(3) == set(range(3000, 4000)) - {row.id for row in kept}


def test_a_floor_keeps_a_weighted_share_of_the_least_valuable(spark: SparkSession, tmp_path: Path) -> None:
    options = {"identity": "id", "utility": "value", "floor": 0.05}
    stream = Stream(spark, tmp_path, SCHEMA, shed_only, options, keeps=[0.15])
    stream.start()
    for batch in range(4):
        stream.feed(rows(batch * 4000, 4000))
    kept = [row for batch in (2, 3) for row in stream.results[batch]]
    stream.stop()
    best, least = [row for row in kept if row.value == 9.0], [row for row in kept if row.value < 8.0]
    assert len(best) == 800 and {row._weight for row in best} == {1.0}
    assert {row.value for row in least} == {float(value) for value in range(8)}
    assert {row._weight for row in least} == {20.0}
    deviation = (6400 * 0.05 * 0.95) ** 0.5
    assert len(least) == pytest.approx(320, abs=5 * deviation)


def test_keys_are_kept_or_dropped_whole(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, SCHEMA, shed_only, {"key": "user"}, keeps=[0.5])
    stream.start()
    for batch in range(4):
        stream.feed(rows(batch * 1000, 1000))
    stream.stop()
    fewer, more = sorted(({row.user for row in stream.results[batch]} for batch in (2, 3)), key=len)
    assert fewer <= more  # the keep follows the batch, and what a lower one keeps a higher one keeps too
    assert 0 < len(fewer) <= len(more) < 20
    for batch in (2, 3):
        assert len(stream.results[batch]) == 50 * len({row.user for row in stream.results[batch]})
    assert stream.found_again(3) == set(range(3000, 4000)) - {row.id for row in stream.results[3]}


def test_watermarked_windows_go_on_while_the_rate_changes_and_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    def windows(df: DataFrame, shed: Shedder) -> DataFrame:
        marked = df.withWatermark("ts", "5 seconds").transform(shed)
        grouped = marked.groupBy(fn.window("ts", "10 seconds"))
        return grouped.agg(fn.count("*").alias("n"), fn.sum("_weight").alias("estimate"))

    stream = Stream(spark, tmp_path, SCHEMA, windows, {"identity": "id"})
    stream.start()
    for batch, keep in enumerate((1.0, 0.5, 0.5, 0.2, 1.0)):
        stream.keeps.append(keep)
        stream.feed(rows(batch * 1000, 1000, second=batch * 10))
    stream.stop()
    stream.start()
    for batch in range(5, 8):
        stream.feed(rows(batch * 1000, 1000, second=batch * 10))
    assert stream.query.exception() is None
    stream.stop()
    emitted = [row for batch in stream.results.values() for row in batch]
    assert len(emitted) == len({row.window.start for row in emitted}) >= 5
    assert min(row.n for row in emitted) < 600
    for row in emitted:  # five standard deviations, and exactly where nothing was dropped
        assert row.estimate == pytest.approx(1000, rel=5 * math.sqrt((1 - row.n / 1000) / row.n) + 1e-9)
    assert Ledger(stream.shed.files.store).fold().differences() == []


def test_stream_stream_join_goes_on_while_the_rate_changes(spark: SparkSession, tmp_path: Path) -> None:
    def joined(df: DataFrame, shed: Shedder) -> DataFrame:
        left = df.withWatermark("ts", "5 seconds").transform(shed)
        right = df.select(fn.col("id").alias("other"), fn.col("ts").alias("seen")).withWatermark("seen", "5 seconds")
        near = fn.expr("id = other AND seen BETWEEN ts - INTERVAL 2 SECONDS AND ts + INTERVAL 2 SECONDS")
        return left.join(right, near)

    stream = Stream(spark, tmp_path, SCHEMA, joined, {"identity": "id"})
    stream.start()
    for batch, keep in enumerate((1.0, 0.5, 0.25, 1.0)):
        stream.keeps.append(keep)
        stream.feed(rows(batch * 400, 400, second=batch * 10))
    assert stream.query.exception() is None
    stream.stop()
    ledger = Ledger(stream.shed.files.store)
    found = {row.id for batch in stream.results.values() for row in batch}
    assert len(found) == ledger.fold().total.kept.total() < ledger.fold().total.offered.total()
    assert ledger.fold().differences() == []


def test_overload_is_shed_on_the_rate_source(spark: SparkSession, tmp_path: Path) -> None:
    shed = floodway.shed("busy", target_latency="1s", mode="enforce", state_dir=str(tmp_path / "state"))
    source = spark.readStream.format("rate").option("rowsPerSecond", 20_000).load()
    # Batches that keep all take a second and more, where two thirds of one are to be met.
    costly = waiting(source.transform(shed), 75e-6)
    query = costly.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    try:
        wait_until(lambda: Ledger(shed.files.store).fold().total.dropped.total() > 0 or not query.isActive)
        assert query.exception() is None
    finally:
        query.stop()
    lines = [line for line in Ledger(shed.files.store).read() if line.keep_ppm < 1_000_000]
    assert lines
    for line in lines:
        assert line.kept / line.offered == pytest.approx(line.keep_ppm / 1e6, abs=0.02)
    assert Ledger(shed.files.store).fold().differences() == []


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="Spark before 4.3 adds up the counts of all actions on a batch")
def test_a_sink_with_several_actions_is_counted_right_or_known_as_uncertain(stream: Stream) -> None:
    stream.start()
    stream.feed(rows(0, 3000))
    stream.sink = DataFrame.count  # a second action that reads all
    stream.feed(rows(3000, 3000))
    stream.sink = DataFrame.isEmpty  # the last one reads a few
    stream.feed(rows(6000, 3000))
    lines = Ledger(stream.shed.files.store).read()
    assert [(line.batch, line.reason) for line in lines] == [
        (0, "shedder"), (1, "shedder"), (2, "shedder"), (2, "uncertain"),
    ]  # fmt: skip
    assert [line.offered for line in lines[:2]] == [3000, 3000]
    assert lines[2].offered < 3000 < lines[3].offered
    differences = Ledger(stream.shed.files.store).fold().differences()
    assert len(differences) == 1 and "fewer were counted" in differences[0]
    status = stream.shed.files.read_status()
    assert status is not None and "batch.persist()" in status.warnings[0]
    assert status.rates.offered is not None and status.rates.offered > 0


def test_what_stands_between_a_source_and_a_shed(spark: SparkSession) -> None:
    source = spark.readStream.format("rate").load()
    assert stands_on_source(source.withColumn("x", fn.lit(1)).withWatermark("timestamp", "1 second").select("value"))
    assert not stands_on_source(source.filter("value > 3"))
    assert not stands_on_source(source.union(source))


def test_a_shed_applied_twice_has_one_loop_and_another_of_its_name_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    def made(target: str, utility: str | None = None) -> Shedder:
        value = None if utility is None else fn.col(utility)
        return shed("twice", target_latency=target, utility=value, state_dir=str(tmp_path / "state"))

    source = spark.readStream.format("rate").load()
    first, again = made("1s", "value"), made("1s", "value")
    frame = source.transform(first)
    source.transform(again)
    assert again.loop is first.loop
    for other in (made("2s", "value"), made("1s")):
        with pytest.raises(InputError, match="'twice' is already in use in this process with other options"):
            source.transform(other)
    query = frame.writeStream.format("noop").start()
    try:
        with pytest.raises(InputError, match="already in use"):
            source.transform(made("2s"))
    finally:
        query.stop()
    # Its queries have ended: as after a change of the code in a notebook.
    wait_until(lambda: first.loop.finished)
    changed = made("2s")
    source.transform(changed)
    assert changed.loop.settings.target_seconds == 2.0


def test_identity_is_found(spark: SparkSession) -> None:
    kafka = spark.createDataFrame([], "key binary, value binary, topic string, partition int, offset long")
    assert identity_columns(kafka) == ("topic", "partition", "offset")
    assert identity_columns(kafka.withColumn("_id", fn.lit(1))) == ("_id",)
    assert identity_columns(kafka, ["key"]) == ("key",)
    other = spark.createDataFrame([], "a int, m map<string, int>, _weight double")
    assert identity_columns(other) == ("a",)
    with pytest.raises(InputError, match="'b'"):
        identity_columns(other, ["b"])
    with pytest.raises(InputError, match="identity="):
        identity_columns(spark.createDataFrame([], "m map<string, int>"))


def untyped(value: Any) -> Any:
    """What somebody gives who checks no types."""
    return value


def test_wrong_use_is_refused_with_a_hint(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target_latency"):
        floodway.shed("x", target_latency="soon")
    with pytest.raises(InputError, match="Choose one of"):
        floodway.shed("x", target_latency="2s", mode="maybe")
    with pytest.raises(InputError, match="Did you mean batch"):
        floodway.shed("x", target_latency="2s", controller="bach")
    with pytest.raises(InputError, match="folder"):
        floodway.shed("../x", target_latency="2s")
    with pytest.raises(InputError, match="cannot both"):
        floodway.shed("x", target_latency="2s", utility="a", key="b")
    with pytest.raises(InputError, match="of tuples chosen by utility="):
        floodway.shed("x", target_latency="2s", floor=0.1)
    with pytest.raises(InputError, match="is no share in"):
        floodway.shed("x", target_latency="2s", utility="a", floor=0.9)
    with pytest.raises(InputError, match="window='10 seconds' does not name a time column"):
        floodway.shed("x", target_latency="2s", window=untyped("10 seconds"))
    with pytest.raises(InputError, match="lossless='no' is neither True nor False"):
        floodway.shed("x", target_latency="2s", lossless=untyped("no"))
    with pytest.raises(InputError, match="shed name 3"):
        floodway.shed(untyped(3), target_latency="2s")
    with pytest.raises(InputError, match="not a stream"):
        spark.range(3).transform(floodway.shed("x", target_latency="2s", state_dir=str(tmp_path)))
    source = spark.readStream.format("rate").load()
    for options, message in (
        ({"utility": "prise"}, "utility= is no column or expression of the stream: prise"),
        ({"utility": "cast(value as string)"}, "utility= is of type string, not a number"),
        ({"arrival": "at"}, "arrival= names 'at', which is no column"),
        ({"window": WindowDrop("when", "1 second")}, "window= names 'when'"),
        (
            {"arrival": "value"},
            "of type bigint, not a timestamp. The stream has timestamp",
        ),
        ({"key": ["value", "user"]}, "key= names 'user', no column of the stream. Choose from timestamp, value"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            source.transform(shed("x", target_latency="2s", state_dir=str(tmp_path), **options))
    weighted = source.withColumn("_weight", fn.lit("heavy"))
    with pytest.raises(InputError, match="column _weight is of type string"):
        weighted.transform(shed("x", target_latency="2s", state_dir=str(tmp_path)))
    assert not (tmp_path / "x").exists()
    assert "shed" in dir(floodway)
    with pytest.raises(InputError, match="does not drop windows"):
        floodway.shed("x", target_latency="2s").kept_windows()
