"""Until capacity comes: a young overload drops nothing, an old one does, and executors are asked for meanwhile."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.capacity_wait import CapacityWait
from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.loop.steering import Steered
from floodway.control.loop import Patience
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.query.layout import RunLayout
from floodway.spark.shed.executors import EVERY_SECONDS, ExecutorRequests
from floodway.units import PPM
from tests.agent.test_agent_steering import split_network, steering
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

CHAIN = """
version: 1
name: chain
streams: {s: {max_rate: 4000}}
nodes: {A: {cpu: 1.0}}
operators: {work: {node: A, from: s, kind: delay, cost: 0.001}}
outputs: {q: {from: work}}
"""
HELD = "nothing is dropped in the first 3600 s"


def decided(rate: float) -> Steered:
    return steering(split_network()).decide({"s": rate}, {"s": rate}, "enforce", 0)


def keeps(steered: Steered) -> set[int]:
    return {steered.decision.keep_ppm("s", waiting=10**6), *steered.decision.arcs.values()} - {PPM}


def test_drops_are_held_back_until_an_overload_has_lasted() -> None:
    wait = CapacityWait(Patience(90.0))
    for rate in (200.0, 500.0):  # a branch is cut, then the stream too
        assert keeps(decided(rate))
        assert not keeps(wait.take(decided(rate), 2.0, 10.0)) and wait.reason is not None
    assert "overloaded for 0 s: nothing is dropped in the first 90 s" in (wait.reason or "")
    assert not keeps(wait.take(decided(500.0), 2.0, 99.0))
    old = wait.take(decided(500.0), 2.0, 100.0)
    assert old == decided(500.0) and wait.reason is None
    assert wait.take(decided(50.0), 0.5, 110.0) == decided(50.0)  # a pause: the next overload is young again
    assert not keeps(wait.take(decided(500.0), 2.0, 120.0))
    assert CapacityWait().take(decided(500.0), 2.0, 0.0) == decided(500.0)


def test_executors_are_asked_for_by_the_capacity_that_is_needed() -> None:
    asked: list[int] = []
    wait = CapacityWait(Patience(90.0), ExecutorRequests(lambda: 4, asked.append))
    wait.take(decided(50.0), 0.5, 0.0)
    wait.take(decided(500.0), 1.5, 10.0)
    assert asked == [3]
    wait.efficiency.measured = 0.5
    wait.take(decided(500.0), 1.5, 10.0 + EVERY_SECONDS)
    assert asked == [3, 4]


@pytest.mark.spark
def test_a_run_that_waits_drops_nothing_and_says_so(spark: Session, tmp_path: Path) -> None:
    network, ended, told = parse_network(CHAIN), Event(), list[str]()

    def look(status: Status) -> None:
        told.append(status.reason)
        # The feed brings four times what fits for as long as the run lasts, so that it comes to be seen.
        if HELD in status.reason and Ledger(RunLayout(tmp_path).store).fold().total.offered["s"] > 0:
            ended.set()

    options = RunOptions(
        seconds=PATIENCE_SECONDS, root=tmp_path, target=Target(1.0), settle_seconds=0.0,
        feeds={"s": Feed(rate=4000)}, progress=look, ended=ended, shed_after=3600.0,
    )  # fmt: skip
    body = run_network(network, options, spark).to_dict()
    assert ended.is_set(), told[-5:]
    assert body["dropped"] == {} and body["kept"] == body["offered"] and body["kept"]["s"] > 0
