"""The one manager over both engines: micro-batches as on Spark, tuple by tuple as in the paper's simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from floodway.buffering.cursors import QueueView
from floodway.buffering.engines import Engine, MicroBatches, TupleByTuple
from floodway.buffering.managers import UNBOUNDED, CycleSeen, make_manager
from floodway.buffering.options import BufferOptions
from floodway.buffering.queues import QueueClass

ENGINES: list[Callable[[Iterable[float]], Engine]] = [MicroBatches, TupleByTuple]
DEADLINES = (2.0, 8.0)


def seen(now: float, miss_ratio: float | None, *, kept: float = 1.0, offered: float = 2.0) -> CycleSeen:
    return CycleSeen(now, 1.0, kept=kept, offered=offered, waiting=1.0, arrived=0.0, miss_ratio=miss_ratio)


def queue(name: str = "s", *, waiting: int = 0, arrived: int = 0, served: int = 0, rate: float = 10.0) -> QueueView:
    kind = QueueClass(name, 2.0)
    return QueueView(name, kind, waiting, arrived, served, cost_seconds=0.01, rate=rate)


@pytest.mark.parametrize("engine", ENGINES)
def test_misses_lower_the_budget_and_their_end_raises_it_again(engine: Callable[[Iterable[float]], Engine]) -> None:
    manager = make_manager(BufferOptions(), engine(DEADLINES))
    manager.control(seen(0.0, 0.0))
    first = manager.budget_seconds
    for step in range(1, 6):
        manager.control(seen(float(step), 0.5))
    low = manager.budget_seconds
    for step in range(6, 30):
        manager.control(seen(float(step), 0.0))
    assert first is not None and low is not None
    least, most = manager.engine.bounds(3.0)
    assert first == pytest.approx(most)
    assert least <= low < 0.8 * first
    assert manager.budget_seconds == pytest.approx(most)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["cob", "aurora"])
def test_without_a_buffer_a_queue_over_its_target_lets_less_in(
    engine: Callable[[Iterable[float]], Engine], name: str
) -> None:
    manager = make_manager(BufferOptions("cob" if name == "cob" else "aurora"), engine(DEADLINES))
    for step in range(4):
        manager.engine.learn(1.0, 1.0)
        manager.control(CycleSeen(float(step), 1.0, kept=1.0, offered=2.0, waiting=5.0, arrived=0.0, miss_ratio=0.2))
    policy = manager.policy
    _, shedding = policy.adaptor.update(policy.adaptor.initial(), queue().sample)
    assert shedding.keep < 0.9
    assert policy.scheduler.name == "fifo" and not policy.cleans
    assert manager.budget_seconds is None
    (view,) = manager.views([queue(waiting=10)], 1.0)
    assert view.limit == UNBOUNDED


def test_costs_are_the_measured_ones_on_both_engines() -> None:
    for engine in (MicroBatches(DEADLINES), TupleByTuple(DEADLINES)):
        for _ in range(60):
            engine.learn(1.0, 2.0)
        manager = make_manager(BufferOptions(limit=100), engine)
        (view,) = manager.views([queue()], 1.0)
        assert view.cost_seconds == pytest.approx(0.01 * engine.seconds_per_work)
        # Seen once and again, the same batch tells nothing of its overhead: what was believed first stands.
        assert engine.seconds_per_work == pytest.approx(2.0 - engine.overhead_seconds, rel=0.01)


def test_the_limit_is_shared_by_rate_and_holds_until_something_remarkable() -> None:
    manager = make_manager(BufferOptions(limit=300), MicroBatches(DEADLINES))
    first = manager.views([queue("a", rate=20.0), queue("b", rate=10.0)], 1.0)
    assert [view.limit for view in first] == [200, 100]
    again = manager.views([queue("a", rate=25.0), queue("b", rate=10.0)], 1.0)
    assert [view.limit for view in again] == [200, 100]
    changed = manager.views([queue("a", rate=90.0), queue("b", rate=10.0)], 1.0)
    assert [view.limit for view in changed] == [269, 31]  # one tuple each before the rest is shared


def test_an_emptied_queue_is_judged_by_what_could_have_left_it() -> None:
    manager = make_manager(BufferOptions(limit=300), TupleByTuple(DEADLINES))
    (idle,) = manager.views([queue(arrived=80, served=10)], 1.0)
    assert idle.served == 100
    (busy,) = manager.views([queue(waiting=5, arrived=80, served=10)], 1.0)
    assert busy.served == 10


def test_a_batch_stays_within_half_the_tightest_deadline_in_reach() -> None:
    engine = MicroBatches([0.4, 4.0])
    assert engine.tightest == 4.0  # an empty batch takes 0.3 s: 0.4 s is out of reach
    assert sum(engine.bounds(0.0)[1:]) + engine.overhead_seconds == pytest.approx(0.9 * 4.0 / 2)
    assert MicroBatches([]).tightest == MicroBatches([]).longest == 60.0
    with_queue = make_manager(BufferOptions(), engine).decide(0.0, [queue(waiting=1000)])
    assert engine.overhead_seconds + 0.01 * with_queue["s"].take <= 0.9 * 4.0 / 2 + 1e-9
