"""A union and a join on Spark under overload: planned by the linear program, put out as the papers' formula says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.job.options.values import Target
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.planning.factory import make_planner
from floodway.spark.audit.run import audit
from floodway.spark.query.layout import RunLayout
from floodway.units import PPM
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

JOIN = """
version: 1
name: join
streams: {s1: {max_rate: 400}, s2: {max_rate: 400}}
nodes: {A: {cpu: 1.0}}
operators:
  o1: {node: A, from: s1, HOW, cost: 0.0015}
  o2: {node: A, from: s2, HOW, cost: 0.0015}
  met: {node: A, from: [o1, o2], kind: join, windows: [4, 4], selectivity: 0.25, cost: 0.0001}
outputs: {q: {from: met}}
"""
"""A tuple of either stream makes 4 · 0.25 results at the same cost, so the plan divides evenly. Were one worth less,
all of it would go first, and results would be as old as what is left of it in its window.
"""

UNION = """
version: 1
name: union
streams: {s1: {max_rate: 400}, s2: {max_rate: 400}}
nodes: {A: {cpu: 1.0}}
operators:
  o1: {node: A, from: s1, HOW, cost: 0.0035}
  o2: {node: A, from: s2, HOW, cost: 0.0005}
  both: {node: A, from: [o1, o2], kind: union, cost: 0.0001}
outputs: {q: {from: both}}
"""
"""A result from s1 costs six times one from s2."""

RATES = {"s1": 400.0, "s2": 400.0}
WINDOW = 4
"""Tuples in each window of the join."""


def overloaded_on_paper(text: str) -> str:
    """Operators that do nothing, with twenty times their cost declared: the first plan sheds on any machine."""
    quick = text.replace("HOW", "run: 'tests.agent.jobs:unchanged'")
    return re.sub(r"cost: ([\d.]+)", lambda cost: f"cost: {20 * float(cost[1]):g}", quick)


def run(spark: Session, text: str, root: Path, *, seconds: float = PATIENCE_SECONDS, results: int = 0) -> RunReport:
    """Run for some seconds, or until s1 was shed beside s2 and so many results are there of batches with both."""
    ended = Event()

    def look(status: Status) -> None:
        if results and shed_keeps(root) and counts(root, after_both=True)["q"].kept >= results:
            ended.set()

    text = overloaded_on_paper(text) if results else text.replace("HOW", "kind: delay")
    options = RunOptions(
        seconds=seconds, root=root, target=Target(4.0), settle_seconds=seconds / 2, progress=look, ended=ended,
        feeds={name: Feed(rate=rate) for name, rate in RATES.items()},
    )  # fmt: skip
    report = run_network(parse_network(text), options, spark)
    assert report.differences == ()
    assert audit(parse_network(text), RunLayout(root)).differences == ()
    assert ended.is_set() or not results
    return report


@dataclass
class Count:
    """What was offered and kept at one place."""

    offered: int = 0
    kept: int = 0

    @property
    def dropped(self) -> int:
        return self.offered - self.kept


def counts(root: Path, *, after_both: bool = False) -> dict[str, Count]:
    """By stream and output; `after_both`: of the batches after the first one that kept a window of both streams.

    Streams are fed by a process each, and on a busy machine one begins long after the other.
    """
    found = {name: Count() for name in (*RATES, "q")}
    filled: dict[str, int] = {}
    lines = [line for line in Ledger(RunLayout(root).store).lines() if line.at in found]
    for line in sorted(lines, key=lambda line: line.batch):
        if line.at in RATES and line.kept >= WINDOW:
            filled.setdefault(line.at, line.batch)
    first = max(filled.values()) if filled.keys() == RATES.keys() else None
    for line in lines:
        counted = line.reason in (Reason.SHEDDER, Reason.DELIVERED)
        if counted and (not after_both or (first is not None and line.batch > first)):
            found[line.at].offered += line.offered
            found[line.at].kept += line.kept
    return found


def shed_keeps(root: Path) -> list[dict[str, int]]:
    """The keeps by stream of the batches that had both and shed s1.

    A plan that is made while a feeder stands still knows nothing of its stream, and keeps all of it.
    """
    keeps: dict[int, dict[str, int]] = {}
    for line in Ledger(RunLayout(root).store).lines():
        if line.at in RATES and line.reason == Reason.SHEDDER:
            keeps.setdefault(line.batch, {})[line.at] = line.keep_ppm
    return [keep for keep in keeps.values() if keep.keys() == RATES.keys() and keep["s1"] < PPM]


def test_a_join_puts_out_what_the_formula_says_of_what_was_kept(spark: Session, tmp_path: Path) -> None:
    report = run(spark, JOIN, tmp_path, results=300)
    found = counts(tmp_path, after_both=True)
    assert found["q"].kept == pytest.approx(0.25 * WINDOW * (found["s1"].kept + found["s2"].kept), rel=0.2)
    assert any(point.latency_seconds is not None for point in report.points)  # the arrival was carried through


def test_a_union_puts_out_all_that_was_kept_and_sheds_the_expensive_stream(spark: Session, tmp_path: Path) -> None:
    run(spark, UNION, tmp_path, results=300)
    found = counts(tmp_path)
    assert found["q"].kept == found["s1"].kept + found["s2"].kept
    # One feeder that stands still for a while makes a plan for the other: most plans know both.
    keeps = shed_keeps(tmp_path)
    assert keeps and 2 * sum(keep["s1"] < keep["s2"] for keep in keeps) > len(keeps), keeps


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize(("text", "optimum"), [(JOIN, 625.0), (UNION, 611.1)], ids=["join", "union"])
def test_the_score_is_that_of_the_linear_program(spark: Session, tmp_path: Path, text: str, optimum: float) -> None:
    planned = make_planner(parse_network(text.replace("HOW", "kind: delay")), "exact").plan(RATES)
    assert planned.score == pytest.approx(optimum, rel=1e-3)
    report = run(spark, text, tmp_path, seconds=30.0)
    assert 0.9 * report.optimum <= report.score <= report.optimum
