"""A decision that nobody renews expires: the batches keep everything again, also when they are repeated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from floodway.control.registry import make_controller
from floodway.errors import InputError
from floodway.job.decision import write_mode
from floodway.job.places import ShedFiles
from floodway.spark.shed import listener
from floodway.spark.shed.chooser import ShedSettings
from floodway.spark.shed.loop import ShedLoop
from floodway.spark.shed.shed import shed
from tests.patience import wait_until
from tests.spark.shedding import Stream

pytestmark = pytest.mark.spark


def rows(first: int, number: int) -> list[str]:
    return [f'{{"id": {i}}}' for i in range(first, first + number)]


def feed_until_dropped(stream: Stream) -> None:
    """Batches until one has met a decision that holds: a process that is held up may renew the first ones too late."""
    wait_until(
        lambda: 0 < len(stream.results.get(stream.files - 1, ())) < 250,
        "a drop",
        meanwhile=lambda: stream.feed(rows(500 * stream.files, 500)),
    )


def test_batches_keep_everything_once_the_loop_is_dead_and_drop_again_when_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(
        spark, tmp_path, "id bigint", lambda df, drop: df.transform(drop), {"expires_after": "10s"}, keeps=[0.2],
        follows=True,
    )  # fmt: skip
    stream.start()
    feed_until_dropped(stream)

    # The process that decides is gone: it neither hears of batches nor renews.
    applied = next(one for one in listener._applied.values() if one.loop is stream.shed.loop)
    applied.heartbeat.stop()
    spark.streams.removeListener(listener._listeners[spark])
    until_us = stream.shed.loop.control.latest.until_us
    assert until_us is not None
    wait_until(lambda: time.time_ns() // 1000 > until_us)
    last = stream.files
    stream.place(rows(500 * last, 500))
    stream.query.processAllAvailable()
    assert {row._weight for row in stream.results[last]} == {1.0}
    assert len(stream.results[last]) == 500
    status = stream.shed.files.read_status()
    assert status is not None and status.decision_until == until_us / 1e6

    # It is back, and the batch is repeated, as after a crash before its commit.
    stream.stop()
    (stream.folder / "checkpoint" / "commits" / f"{last}").unlink()
    (stream.folder / "checkpoint" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    stream.shed.loop.on_end(str(stream.query.id))  # a new process begins with a new loop
    spark.streams.addListener(listener._listeners[spark])
    stream.results.clear()
    stream.start()
    stream.query.processAllAvailable()
    stream.settle()
    assert len(stream.results[last]) == 500
    status = stream.shed.files.read_status()
    assert status is not None and "nobody renewed the decision" in status.warnings[-1]
    feed_until_dropped(stream)
    stream.stop()


def test_the_heartbeat_renews_while_no_batch_comes(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(
        spark, tmp_path, "id bigint", lambda df, drop: df.transform(drop), {"expires_after": "1s"}, keeps=[0.2]
    )
    stream.start()
    stream.feed(rows(0, 10))
    before = stream.shed.loop.control.latest
    assert before.until_us is not None
    after = before.until_us + 2_000_000
    wait_until(lambda: (stream.shed.loop.control.latest.until_us or 0) > after)
    assert stream.shed.loop.control.latest.says(before)
    stream.stop()
    wait_until(lambda: stream.shed.loop.finished)
    ended = stream.shed.loop.control.latest.until_us
    wait_until(lambda: time.time_ns() // 1000 > (ended or 0) + 1_000_000)
    assert stream.shed.loop.control.latest.until_us == ended


def test_the_kill_switch_is_in_force_for_the_batch_after_the_one_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    """That one begins before the loop hears of the one before; the decision of the latter never expires."""
    stream = Stream(spark, tmp_path, "id bigint", lambda df, drop: df.transform(drop), keeps=[0.2])

    def held(batch: DataFrame) -> None:
        if stream.files > last:
            write_mode(stream.shed.files.store, "off")
            wait_until(lambda: stream.shed.loop.control.latest.mode == "off", "the mode")
            valid_us = stream.shed.loop.control.latest.valid_from_us
            wait_until(lambda: time.time_ns() // 1000 > valid_us)

    last = 1000
    stream.sink = held
    stream.start()
    feed_until_dropped(stream)
    last = stream.files
    for batch in (last, last + 1):
        stream.place(rows(500 * batch, 500))
    stream.query.processAllAvailable()
    assert 0 < len(stream.results[last]) < 250 and len(stream.results[last + 1]) == 500
    stream.stop()


@pytest.mark.parametrize("hours", [1, 24, -1, -24])
def test_a_clock_that_is_set_is_followed_at_once_and_not_with_the_next_beat(tmp_path: Path, hours: int) -> None:
    """Else every batch that begins until then would keep everything, because its decision has expired."""
    set_us = 0
    settings = ShedSettings(
        "job", 2.0, make_controller("batch", target_seconds=2.0), "enforce", 1, expires_seconds=1800
    )
    loop = ShedLoop(settings, ShedFiles(tmp_path), clock_us=lambda: time.time_ns() // 1000 + set_us)
    loop.on_start("q", None)
    heartbeat = listener.Heartbeat(loop)
    heartbeat.start()
    try:
        set_us = hours * 3_600_000_000
        now_us = loop.clock_us()
        wait_until(lambda: 0 < (loop.control.latest.until_us or 0) - now_us < 1_900_000_000)
    finally:
        heartbeat.stop()


def test_a_mode_that_cannot_be_looked_at_ends_no_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ShedSettings("job", 2.0, make_controller("batch", target_seconds=2.0), "enforce", 1, expires_seconds=1)
    loop = ShedLoop(settings, ShedFiles(tmp_path), clock_us=lambda: time.time_ns() // 1000)
    loop.on_start("q", None)

    def fail() -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(loop, "follow_mode", fail)
    heartbeat = listener.Heartbeat(loop)
    heartbeat.start()
    try:
        began_us = loop.clock_us()
        wait_until(lambda: (loop.control.latest.until_us or 0) > began_us + 2_000_000)
    finally:
        heartbeat.stop()


def test_a_query_that_is_started_again_is_renewed_again(spark: SparkSession, tmp_path: Path) -> None:
    """From the same DataFrame, as whoever restarts what has failed does: the shed is not applied again."""
    again = shed("again", target_latency="2s", expires_after="1s", state_dir=str(tmp_path / "state"))
    (tmp_path / "in").mkdir()  # which stays empty: no batch renews what it decides
    frame = spark.readStream.schema("id bigint").json(str(tmp_path / "in")).transform(again)
    applied = next(one for one in listener._applied.values() if one.loop is again.loop)

    def run_until_renewed() -> None:
        query = frame.writeStream.format("noop").start()
        begun_us = time.time_ns() // 1000
        wait_until(lambda: (again.loop.control.latest.until_us or 0) > begun_us + 3_000_000)
        query.stop()
        wait_until(lambda: again.loop.finished)

    run_until_renewed()
    wait_until(lambda: applied.heartbeat._thread is None)
    run_until_renewed()


def test_a_time_to_expire_is_checked() -> None:
    with pytest.raises(InputError, match="expires_after='soon' is not a duration"):
        shed("x", target_latency="2s", expires_after="soon")
    assert shed("x", target_latency="2s", expires_after="never").options.settings("x").expires_seconds is None
    assert shed("x", target_latency="2s").options.settings("x").expires_seconds == 60.0
