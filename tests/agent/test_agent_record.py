from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from floodway.agent.loop.record import Record
from floodway.agent.loop.steering import Steering
from floodway.job.ledger import LedgerLine
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective
from floodway.spark.query.fragment_query import BatchReport
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.sinks import Written

NETWORK = Network(
    "n", {"s": Stream("s")}, {"A": Node("A")}, {"a": Operator("a", "A", ("s",), cost=1.0)}, {"q": Output("q", "a")}
)


def record(*ends: float) -> Record:
    """A run from 100.0, settled at 110.0, whose batches of ten tuples ended at these times."""
    found = Record(NETWORK)
    found.begin(100.0, {"s": 0})
    found.settle(110.0, {"s": 0})
    for number, end in enumerate(ends):
        written = {"q": Written(np.array([(end - 3.0) * 1e3], dtype=np.int64), np.array([10]))}
        journal = JournaledBatch(number, int((end - 2.0) * 1e3), {})
        found.batch(BatchReport("A.main", journal, end - 2.0, end, (), written), 1.0)
    found.end(130.0, {"s": 0})
    return found


def test_several_batches_are_measured_from_the_end_of_the_first() -> None:
    found = record(112.0, 114.0, 117.0)
    assert found.measured_seconds == pytest.approx(5.0)
    assert found.throughput() == {"q": pytest.approx(4.0)}


def test_a_single_batch_is_measured_from_the_settling() -> None:
    found = record(114.0)
    assert found.measured_seconds == pytest.approx(4.0)
    assert found.throughput() == {"q": pytest.approx(2.5)}
    seconds, tuples = found.latencies()
    assert (seconds.tolist(), tuples.tolist()) == ([3.0], [10])


def test_no_batch_is_no_throughput() -> None:
    found = record()
    assert found.measured_seconds == 0.0
    assert found.throughput() == {"q": 0.0}


def test_the_status_names_the_plan_and_who_made_it() -> None:
    parts = {f"A.{one.name}": one for one in fragments(NETWORK, "A")}
    for objective in Objective:
        planner = make_planner(NETWORK, "exact", objective=objective)
        steered = Steering(planner, parts, target_seconds=2.0).decide({"s": 9.0}, {"s": 9.0}, "enforce", 0)
        status = record().status(130_000_000, 2.0, steered, {"s": 9})
        assert (status["plan"], status["planner"], status["objective"]) == (steered.decision.plan, "exact", objective)
        assert status["plan"]


def test_batches_are_added_up_and_not_kept() -> None:
    found = Record(NETWORK)
    found.begin(100.0, {"s": 0})
    found.settle(100.0, {"s": 0})
    arrivals = np.array([99_000, 99_500], dtype=np.int64)
    line = LedgerLine("A.main", 0, "s", "shedder", 20, 5, 15)
    sizes = []
    for number in range(300):
        end = 101.0 + number
        written = {"q": Written(arrivals + 1000 * number, np.array([1, 3]))}
        journal = JournaledBatch(number, int((end - 1.0) * 1e3), {})
        found.batch(BatchReport("A.main", journal, end - 1.0, end, (replace(line, batch=number),), written), 1.0)
        sizes.append(len(pickle.dumps((found._first, found._later))))
    assert sizes[-1] < sizes[2] + 100, "grows with the number of batches"
    assert found.batches == 300
    seconds, tuples = found.latencies()
    assert (seconds.tolist(), tuples.tolist()) == ([1.5, 2.0], [3 * 299, 299])
    assert found.kept_shares() == {"s": 0.25}
    assert found.throughput() == {"q": pytest.approx(4.0)}
    assert found.measured_seconds == pytest.approx(299.0)


def test_points_are_bounded_and_batches_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodway.agent.loop.record.MOST_POINTS", 3)
    found = record(112.0, 114.0, 117.0, 119.0, 120.0)
    assert [point.seconds for point in found.points] == [17.0, 19.0, 20.0]
    assert found.batches == 5
