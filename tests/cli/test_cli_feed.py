"""`floodway feed` as a person and as a script run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodway.spark.log import LogReader
from tests.command import Done, floodway


def feed(*arguments: str) -> Done:
    return floodway("feed", *arguments)


def test_json_is_one_object_and_the_log_holds_what_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = feed(str(log), "--rate", "5000", "--seconds", "1", "--partitions", "2", "--json")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["offered"] == 5000 and body["partitions"] == [2500, 2500]
    assert body["rate"] == pytest.approx(body["offered"] / body["seconds"])
    assert LogReader(log).end_positions() == {0: 2500, 1: 2500}


def test_a_log_keeps_what_it_is_told_to_and_a_topic_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Looked at with every append: ticks that are late come all at once, and no second passes between them.
    monkeypatch.setattr("floodway.spark.log.writer._RETIRE_EVERY_MICROS", 0)
    log = tmp_path / "log"
    done = feed(str(log), "--rate", "20000", "--seconds", "2.5", "--retain-bytes", "200000", "--json")
    assert done.returncode == 0, done.stderr
    reader = LogReader(log)
    assert reader.end_positions() == {0: 50_000}
    assert 25_000 < reader.earliest_positions()[0] < 50_000
    refused = feed("kafka://127.0.0.1:1/t", "--retain-seconds", "60")
    assert refused.returncode == 2 and "retention.ms" in refused.stderr
    assert feed(str(log), "--retain-bytes", "0").returncode == 2


def test_a_second_run_appends_to_the_log_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "t.csv").write_text("count\n30\n50\n")
    first = feed(str(log), "--profile", "steps", "--steps", "0.1:100,0.1:300", "--schema", "id bigint, s string")
    second = feed(str(log), "--profile", "trace", "--trace", str(tmp_path / "t.csv"), "--bin", "50ms")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "40 tuples" in first.stdout and "80 tuples" in second.stdout
    assert LogReader(log).end_positions() == {0: 120}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "steps"], "needs --steps"),
        (["--profile", "trace"], "needs --trace"),
        (["--rate", "-1"], "--rate -1 is not a rate"),
        (["--seconds", "0"], "--seconds 0 is not a duration above 0"),
        (["--schema", "id nonsense"], "unknown type 'nonsense'"),
        (["--partitions", "0"], "partitions, not 0"),
        (["--profile", "trace", "--trace", "t.csv", "--bin", "wide"], "--bin wide is not a duration"),
    ],
)
def test_mistakes_are_one_line_with_a_remedy(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = feed(str(tmp_path / "log"), "--json", *arguments)
    assert done.returncode == 2
    body = json.loads(done.stdout)
    assert message in body["error"] and body["hint"] and "Traceback" not in done.stderr


def test_a_log_with_a_writer_and_a_topic_without_a_name_are_refused(tmp_path: Path) -> None:
    from floodway.spark.log import LogWriter, create_log

    create_log(tmp_path / "log", "id bigint")
    with LogWriter(tmp_path / "log") as writer:
        writer.end()
        done = feed(str(tmp_path / "log"), "--seconds", "0.1")
    assert done.returncode == 2 and "has a writer already" in done.stderr
    assert "names no topic" in feed("kafka://localhost:1").stderr


def test_times_and_rates_have_units(tmp_path: Path) -> None:
    done = feed(str(tmp_path / "log"), "--rate", "1k/s", "--seconds", "200ms", "--json")
    body = json.loads(done.stdout)
    assert body["offered"] == 200
    done = feed(str(tmp_path / "steps"), "--profile", "steps", "--steps", "100ms:1k/s,0.1:500", "--json")
    assert json.loads(done.stdout)["offered"] == 150
    for wrong in (("--rate", "fast"), ("--seconds", "0s"), ("--profile", "steps", "--steps", "10s")):
        assert feed(str(tmp_path / "log"), *wrong).returncode == 2
