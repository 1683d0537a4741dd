"""Feeds as processes of a run: one that fails is told, with its own words; one that is done is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from floodway.agent.loop.feeds import Feed, Feeder, FeedError
from floodway.network.file import parse_network
from floodway.spark.log import LogReader
from floodway.spark.query.layout import RunLayout
from tests.patience import wait_until

NETWORK = parse_network("""
version: 1
streams: {s: {max_rate: 1000}}
nodes: {A: {cpu: 1}}
operators: {work: {node: A, from: s, kind: delay, cost: 0.001}}
outputs: {q: {from: work}}
""")


def until(done: Callable[[], bool], feeder: Feeder) -> None:
    wait_until(done, meanwhile=feeder.check)


def test_a_feed_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    missing = Feed(options=("--profile", "trace", "--trace", str(tmp_path / "no-such.csv")))

    def check_for_ever() -> None:
        while True:
            feeder.check()
            time.sleep(0.05)

    with Feeder(NETWORK, RunLayout(tmp_path), {"s": missing}) as feeder:
        feeder.start()
        with pytest.raises(FeedError, match=r"stream s .*no-such\.csv"):
            check_for_ever()


def test_a_feed_that_has_fed_its_trace_is_no_failure(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("5\n5\n")
    short = Feed(options=("--profile", "trace", "--trace", str(trace), "--bin", "100ms"))
    layout = RunLayout(tmp_path)
    with Feeder(NETWORK, layout, {"s": short}) as feeder:
        feeder.start()
        until(lambda: sum(LogReader(layout.stream(NETWORK, "s")).end_positions().values()) >= 10, feeder)
