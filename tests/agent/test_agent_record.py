from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from floodway.agent.loop.batch_figures import LastCuts, finished_batch, loop_status, reason_of, result_latencies
from floodway.agent.loop.record import RunRecord, score_of
from floodway.agent.loop.steering import Steering
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import LedgerLine
from floodway.job.options.values import Target
from floodway.job.status.batches import Batch, Sketch
from floodway.job.status.figures import Figures
from floodway.job.status.parts import BY_COSTS, NO_MEASUREMENT
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.plan import Objective
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.sinks import Written
from floodway.spark.shed.keys.quotas import ALL_NULL, NO_LARGE_KEY
from floodway.spark.source.keys import KeyDrops, with_keys
from floodway.spark.source.offsets import BatchOffset

NETWORK = Network(
    "n", {"s": Stream("s")}, {"A": Node("A")}, {"a": Operator("a", "A", ("s",), cost=1.0)}, {"q": Output("q", "a")}
)


def batch(number: int, end: float) -> Batch:
    """Two seconds, ten tuples of a latency of three seconds."""
    return Batch(
        "A.main", number, end - 2.0, end, latencies=Sketch.of([(3.0, 10)]), delivered={"q": 10}, busy_seconds=2.0
    )


def record(*ends: float) -> RunRecord:
    """A run from 100.0, settled at 110.0, whose batches of ten tuples ended at these times."""
    found = RunRecord(NETWORK)
    found.begin(100.0, {"s": 0})
    found.settle(110.0, {"s": 0})
    for number, end in enumerate(ends):
        found.batch("A.main", batch(number, end), Counts())
    found.end(130.0, {"s": 0})
    return found


def report(lines: tuple[LedgerLine, ...] = ()) -> FragmentReport:
    """Two tuples that arrived at 1000.0 and one at 1000.5 to an output, five to a link; cut at 1001.0."""
    delivered = {
        "q": Written(np.array([1_000_000, 1_000_500]), np.array([2, 1])),
        "a1->b1": Written(np.array([1_000_000]), np.array([5])),
    }
    return FragmentReport("A.main", JournaledBatch(3, 1_001_000, {}), 1001.0, 1002.0, lines, delivered)


def test_several_batches_are_measured_from_the_end_of_the_first() -> None:
    found = record(112.0, 114.0, 117.0)
    assert found.measured_seconds == pytest.approx(5.0)
    assert found.throughput() == {"q": pytest.approx(4.0)}


def test_a_single_batch_is_measured_from_the_settling() -> None:
    found = record(114.0)
    assert found.measured_seconds == pytest.approx(4.0)
    assert found.throughput() == {"q": pytest.approx(2.5)}
    assert (found.latencies().mean, found.latencies().count) == (3.0, 10)


def test_no_batch_is_no_throughput() -> None:
    found = record()
    assert found.measured_seconds == 0.0
    assert found.throughput() == {"q": 0.0}


def test_the_status_names_the_plan_and_who_made_it() -> None:
    parts = {f"A.{one.name}": one for one in fragments(NETWORK, "A")}
    for objective in Objective:
        planner = make_planner(NETWORK, "exact", objective=objective)
        steering = Steering(planner, parts, Target(2.0))
        steered = steering.decide({"s": 9.0}, {"s": 9.0}, "enforce", 0)
        status = loop_status(
            NETWORK,
            Figures(),
            steered,
            kind="run",
            now=130.0,
            target_seconds=2.0,
            waiting={"s": 9},
            reason=reason_of(steered, steering.period_seconds, 2.0),
            decision_seen=None,
            executors=2,
            efficiency=0.8,
        )
        assert (status.executors_more, status.executor_efficiency) == (20, 0.8)
        assert status.plan is not None and status.plan.id == steered.decision.plan != ""
        assert (status.plan.planner, status.plan.objective) == ("exact", objective)
        assert status.keep == pytest.approx(1 / 9)
        assert status.capacity_needed == pytest.approx(9.0)
        assert status.places["s"].waiting == 9
        assert status.reason == f"a batch of 1.3 s holds 1 tuples; 12 wait: keeping 11%, {BY_COSTS}"


def test_a_plan_that_keeps_everything_before_the_first_batch_says_that_nothing_was_measured() -> None:
    parts = {f"A.{one.name}": one for one in fragments(NETWORK, "A")}
    steering = Steering(make_planner(NETWORK, "exact"), parts, Target(2.0))
    steered = steering.decide({"s": 0.5}, {"s": 0.5}, "enforce", 0)
    assert reason_of(steered, steering.period_seconds, 2.0) == NO_MEASUREMENT


def test_a_finished_batch_has_latencies_at_outputs_and_counts_at_inputs() -> None:
    shed = LedgerLine("A.main", 3, "s", "shedder", 20, 10, 10, keep_ppm=400_000)
    late = LedgerLine("A.main", 3, "s", "cleaner", 10, 5, 5)
    found = finished_batch(
        report((shed, late)),
        Counts.of([shed, late]),
        inputs=NETWORK.streams,
        outputs=NETWORK.outputs,
        work_seconds=0.7,
        scale=0.9,
        reason="why",
    )
    assert found.latencies.mean == pytest.approx((2 * 2.0 + 1.5) / 3)
    assert (found.latencies.count, found.delivered) == (3, {"q": 3, "a1->b1": 5})
    assert (found.offered, found.kept, found.keep, found.mode) == (20, 5, 0.4, "enforce")
    assert (found.cut_seconds, found.busy_seconds) == (1001.0, 1.0)
    # Not that of the plan in force by now: this batch was cut under another.
    assert found.reason == "a batch of 1.0 s holds 8 tuples; 20 wait: keeping 40%"
    assert result_latencies(report(), ["a1->b1"]).mean == pytest.approx(2.0)


def test_batches_are_added_up_and_not_kept() -> None:
    found = RunRecord(NETWORK)
    found.begin(100.0, {"s": 0})
    found.settle(100.0, {"s": 0})
    sizes = []
    for number in range(300):
        counts = Counts.of([LedgerLine("A.main", number, "s", "shedder", 20, 5, 15)])
        found.batch("A.main", batch(number, 102.0 + number), counts)
        sizes.append(len(pickle.dumps((found._first, found._later))))
    assert sizes[-1] < sizes[2] + 100, "grows with the number of batches"
    assert (found.latencies().count, found.latencies().mean) == (10 * 299, 3.0)
    assert found.kept_shares() == {"s": 0.25}
    assert found.throughput() == {"q": pytest.approx(10.0)}
    assert found.measured_seconds == pytest.approx(299.0)


def test_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodway.agent.loop.record.MOST_POINTS", 3)
    found = record(112.0, 114.0, 117.0, 119.0, 120.0)
    assert [point.seconds for point in found.points] == [17.0, 19.0, 20.0]


def test_score_and_optimum_are_over_the_same_batches() -> None:
    """A backlog of the start is worked off after settling: more is delivered than arrives meanwhile."""
    found = RunRecord(NETWORK)
    found.begin(100.0, {"s": 0})
    found.settle(110.0, {"s": 0})
    for number, end in enumerate((112.0, 122.0)):
        counts = Counts.of([LedgerLine("A.main", number, "s", "shedder", 20, 10, 10)])
        found.batch("A.main", batch(number, end), counts)
    found.end(130.0, {"s": 2})
    assert found.rates() == {"s": pytest.approx(0.1)}
    assert found.offered_rates() == {"s": pytest.approx(2.0)}
    judged = score_of(NETWORK, found)
    assert judged.score == pytest.approx(1.0)
    assert judged.optimum == pytest.approx(1.0)
    assert judged.load == {"A": pytest.approx(1.0)}
    assert judged.capacity_scale == pytest.approx(1.0)


def test_an_output_that_is_more_than_the_file_says_is_no_more_than_the_optimum() -> None:
    found = record(112.0, 114.0, 117.0)
    judged = score_of(NETWORK, found)
    assert judged.score == judged.optimum == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("tenants", "warnings"),
    [
        (pa.nulls(4000, pa.int64()), (ALL_NULL,)),
        (pa.array(range(4000)), (NO_LARGE_KEY,)),
        (pa.array([number % 100 for number in range(4000)]), ()),
    ],
    ids=["null", "too many", "some"],
)
def test_keys_that_make_no_difference_are_named(tenants: pa.Array, warnings: tuple[str, ...]) -> None:
    drops, rows = KeyDrops(share_by="tenant"), pa.record_batch({"tenant": tenants})
    cut = BatchOffset("s", {0: 0}, {0: 4000}, keep_ppm=300_000, mode="enforce")
    batch = with_keys(cut, drops, lambda span: iter([(np.arange(4000), rows)]))
    last = LastCuts({"s": drops})
    assert last.warnings() == ()
    last.cut("A.main", JournaledBatch(0, 0, {"s": batch}))
    assert last.warnings() == warnings
