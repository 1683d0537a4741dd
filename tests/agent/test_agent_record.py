from __future__ import annotations

import numpy as np
import pytest

from floodway.agent.record import Record
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.fragment_query import BatchReport
from floodway.spark.journal import JournaledBatch
from floodway.spark.sinks import Written

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
        found.batch(BatchReport("A.main", JournaledBatch(number, int((end - 2.0) * 1e3), {}), end, (), written), 1.0)
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
