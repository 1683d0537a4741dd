from __future__ import annotations

import math

import pytest

from floodway.buffering.adaptors import adaptor, adaptors
from floodway.buffering.cursors import BatchPolicy, QueueDecision, QueueView, schedule_batch
from floodway.buffering.queues import QueueClass
from floodway.buffering.ranges import Cursor
from floodway.buffering.schedulers import scheduler
from floodway.errors import InputError
from floodway.units import PPM
from tests.buffering.carried_out import carried_out

TAIL = BatchPolicy(adaptor=adaptor("tail-drop"))


def view(
    name: str = "q",
    deadline: float = math.inf,
    *,
    waiting: int = 100,
    arrived: int = 0,
    limit: int = 1000,
    cost: float = 0.01,
    oldest: float | None = 9.0,
    newest: float | None = 10.0,
    priority: int = 0,
) -> QueueView:
    return QueueView(
        name,
        QueueClass(name, deadline, priority),
        waiting=waiting,
        arrived=arrived,
        limit=limit,
        cost_seconds=cost,
        oldest_generated=oldest,
        newest_generated=newest,
    )


def conserved(seen: QueueView, decision: QueueDecision) -> bool:
    out = decision.expired + decision.shed + decision.take + decision.left
    return seen.waiting + seen.arrived == out and min(decision.expired, decision.take, decision.left) >= 0


def test_edf_over_classes_is_a_merge_of_cursors() -> None:
    fast, slow = view("fast", 2.0), view("slow", 2.5)
    decision = schedule_batch([slow, fast], 0.8, 10.0, TAIL)
    # Until 9.5 + 2.0 = 9.0 + 2.5 only the fast class is due; then both in turn.
    assert decision["fast"].take == pytest.approx(65, abs=2)
    assert decision["slow"].take == pytest.approx(15, abs=2)
    assert decision["fast"].take + decision["slow"].take == 80
    fifo = BatchPolicy(scheduler=scheduler("fifo"), adaptor=adaptor("tail-drop"))
    assert schedule_batch([slow, fast], 0.8, 10.0, fifo)["slow"].take == 40


def test_queues_without_deadline_come_last_and_never_expire() -> None:
    none, some = view("none", oldest=-1e9), view("some", 2.0)
    decision = schedule_batch([none, some], 0.5, 10.0, TAIL)
    assert (decision["none"].take, decision["none"].expired, decision["some"].take) == (0, 0, 50)


def test_expired_heads_are_jumped_by_the_length_of_the_batch_itself() -> None:
    # A batch of 50 tuples takes 0.5 s: all that is older than 0.5 s would be 1 s old at its end.
    decision = schedule_batch([view(deadline=1.0)], 0.5, 10.0, TAIL)["q"]
    assert decision.expired == pytest.approx(50, abs=1)
    assert decision.take == 50
    # With CPU to spare the batch is as long as what it holds: h with h = 0.01 * (100 - 100 h), h = 0.5.
    wide = schedule_batch([view(deadline=1.0)], 5.0, 10.0, TAIL)
    assert wide["q"].expired == pytest.approx(50, abs=1)
    assert wide["q"].take * 0.01 == pytest.approx(0.5, abs=0.02)


def test_deadlines_in_the_past_are_counted_drops() -> None:
    late = view(deadline=1.0, oldest=1.0, newest=2.0)
    decision = schedule_batch([late], 1.0, 10.0, TAIL)["q"]
    assert (decision.expired, decision.take, decision.left) == (100, 0, 0)


def test_a_clock_that_jumps_back_purges_nothing_and_still_serves() -> None:
    decision = schedule_batch([view(deadline=1.0)], 0.5, -1e6, TAIL)["q"]
    assert (decision.expired, decision.take, decision.left) == (0, 50, 50)
    swapped = view(deadline=3.0, oldest=10.0, newest=9.0)
    assert schedule_batch([swapped], 0.5, 10.0, TAIL)["q"].take == 50


def test_unknown_times_count_as_now() -> None:
    decision = schedule_batch([view(deadline=1.0, oldest=None, newest=None)], 0.5, 10.0, TAIL)["q"]
    assert (decision.expired, decision.take) == (0, 50)


def test_a_limit_of_zero_drops_what_cannot_run_now_and_counts_it() -> None:
    for name in adaptors():
        policy = BatchPolicy(adaptor=adaptor(name))
        seen = view(waiting=0, arrived=100, limit=0)
        decision = schedule_batch([seen], 0.3, 10.0, policy)["q"]
        assert (decision.take, decision.left, decision.shed) == (30, 0, 70), name
        assert decision.keep_ppm == 300_000 or decision.front_dropped > 0, name


def test_a_tuple_dearer_than_the_budget_still_goes() -> None:
    decision = schedule_batch([view(cost=9.0), view("p", cost=8.0)], 0.5, 10.0, TAIL)
    assert [one.take for one in decision.queues] == [1, 0]
    assert schedule_batch([view(cost=9.0)], 0.0, 10.0, TAIL)["q"].take == 0


def test_tail_drop_thins_the_new_range_down_to_the_limit() -> None:
    seen = view(waiting=90, arrived=200, limit=100)
    decision = schedule_batch([seen], 0.5, 10.0, TAIL)["q"]
    assert (decision.take, decision.left, decision.new_dropped) == (50, 100, 140)
    assert decision.keep_ppm == 300_000
    assert conserved(seen, decision)


def test_drop_front_jumps_and_random_drop_thins_what_waits() -> None:
    seen = view(waiting=200, arrived=100, limit=100)
    front = schedule_batch([seen], 0.5, 10.0, BatchPolicy(adaptor=adaptor("drop-front")))["q"]
    assert (front.front_dropped, front.expired, front.keep_ppm) == (150, 0, PPM)
    random = schedule_batch([seen], 0.5, 10.0, BatchPolicy(adaptor=adaptor("random-drop")))["q"]
    assert random.thinned > 0
    assert random.thin_ppm < PPM
    assert conserved(seen, front)
    assert conserved(seen, random)


def test_priorities_are_strict_over_queues() -> None:
    policy = BatchPolicy(scheduler=scheduler("priority"), adaptor=adaptor("tail-drop"))
    decision = schedule_batch([view("low", 5.0), view("high", priority=2)], 1.0, 10.0, policy)
    assert (decision["low"].take, decision["high"].take) == (0, 100)


def test_pid_holds_a_queue_near_half_its_limit_over_many_batches() -> None:
    waiting, served, state = 0, 0, None
    history = []
    for _ in range(100):
        seen = QueueView(
            "q",
            QueueClass("q"),
            waiting,
            arrived=120,
            served=served,
            limit=150,
            cost_seconds=0.01,
            adaptor_state=state,
        )
        decision = schedule_batch([seen], 1.0, 0.0)["q"]
        waiting, served, state = decision.left, decision.take, decision.adaptor_state
        history.append(waiting)
    assert sum(history[50:]) / 50 == pytest.approx(75, abs=5)


def test_a_batch_reads_what_was_taken_and_leaves_what_waits() -> None:
    cursor = Cursor(0).extend(100)
    seen = view(waiting=100, arrived=200, limit=100, deadline=1.0)
    decision = schedule_batch([seen], 0.3, 10.0, TAIL)["q"]
    ranges, after = carried_out(decision, cursor, 300)
    assert sum(part.kept for part in ranges) == pytest.approx(decision.take, abs=1)
    assert after.waiting == pytest.approx(decision.left, abs=1)
    assert after.tail == 300


def test_bad_input_is_refused_with_the_queue_s_name() -> None:
    with pytest.raises(InputError, match="cannot be met"):
        view(deadline=-1.0)
    with pytest.raises(InputError, match="queue 'q': a queue limit of -1"):
        view(limit=-1)
    with pytest.raises(InputError, match="queue 'q': a cost of nan"):
        view(cost=math.nan)
    with pytest.raises(InputError, match="queue 'q': a tuple time of nan"):
        view(oldest=math.nan)
    with pytest.raises(InputError, match="fewer than no tuples"):
        view(waiting=-1)
    with pytest.raises(InputError, match="budget of -1"):
        schedule_batch([view()], -1.0, 0.0)
    with pytest.raises(InputError, match="finite time"):
        schedule_batch([view()], 1.0, math.nan)
    with pytest.raises(InputError, match="same name"):
        schedule_batch([view(), view()], 1.0, 0.0)
    assert schedule_batch([], 1.0, 0.0).queues == ()
