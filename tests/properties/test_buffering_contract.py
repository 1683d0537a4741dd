"""The contract that every registered scheduler and adaptor keeps, in the simulation and over cursors."""

from __future__ import annotations

import dataclasses
from heapq import merge

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.buffering.adaptors import QueueSample, adaptor, adaptors
from floodway.buffering.cursors import BatchPolicy, QueueView, schedule_batch
from floodway.buffering.merge import Line, take_in_order
from floodway.buffering.options import BufferOptions
from floodway.buffering.queues import QueueClass
from floodway.buffering.ranges import Cursor
from floodway.buffering.schedulers import scheduler, schedulers
from floodway.simulation.arrivals import draw, poisson
from floodway.simulation.buffer import Run, simulate
from floodway.units import PPM
from tests.effort import tries

PAIRS = [(s, a) for s in schedulers() for a in adaptors()]
CLASSES = (
    QueueClass("s", 0.25),
    QueueClass("s", 1.0, priority=2),
    QueueClass("t"),
    QueueClass("t", 0.0),
)
quick = settings(max_examples=tries(60), deadline=None, derandomize=True)


def simulated(scheduler_name: str, adaptor_name: str, *, seed: int, limit: int, load: float, cleans: bool) -> Run:
    rng = np.random.default_rng(seed)
    tuples = draw(poisson(100.0 * load, 12.0, rng), rng, mean_cost_seconds=0.01, classes=CLASSES, precision=2)
    options = BufferOptions(scheduler=scheduler_name, adaptor=adaptor_name, limit=limit, cleaner=cleans)
    return simulate(tuples, options, rng, seconds=12.0, first_estimate_seconds=0.01)


@pytest.mark.parametrize(("scheduler_name", "adaptor_name"), PAIRS)
@settings(max_examples=tries(8), deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    limit=st.integers(0, 60),
    load=st.floats(0.1, 4.0),
    cleans=st.booleans(),
)
def test_simulated_queue_keeps_the_contract(
    scheduler_name: str, adaptor_name: str, seed: int, limit: int, load: float, cleans: bool
) -> None:
    run = simulated(scheduler_name, adaptor_name, seed=seed, limit=limit, load=load, cleans=cleans)
    total = run.total
    assert run.occupancy.max() <= limit
    assert total.offered == total.shed + total.overflow + total.purged + total.processed + run.waiting
    assert 0.0 <= run.drop_ratio <= 1.0
    assert 0.0 <= run.utilisation <= 1.0 + 1e-9
    assert total.late <= total.processed
    again = simulated(scheduler_name, adaptor_name, seed=seed, limit=limit, load=load, cleans=cleans)
    assert again.total == run.total
    assert np.array_equal(again.occupancy, run.occupancy)


@pytest.mark.parametrize("name", list(adaptors()))
@quick
@given(data=st.data(), limit=st.integers(0, 10_000))
def test_adaptors_shed_a_share_and_remember_a_fixed_number_of_numbers(
    name: str, data: st.DataObject, limit: int
) -> None:
    policy = adaptor(name)
    state = policy.initial()
    fields = [field.name for field in dataclasses.fields(state)]
    for _ in range(data.draw(st.integers(1, 20))):
        sample = QueueSample(
            waiting=data.draw(st.integers(0, limit)),
            limit=limit,
            arrived=data.draw(st.integers(0, 10**6)),
            served=data.draw(st.integers(0, 10**6)),
        )
        before = state
        state, shedding = policy.update(before, sample)
        assert 0.0 <= shedding.keep <= 1.0
        assert policy.update(before, sample) == (state, shedding)
    assert [field.name for field in dataclasses.fields(state)] == fields
    assert all(np.isfinite(value) for value in state.snapshot().values())


times = st.one_of(st.none(), st.floats(-1e6, 1e6))
views = st.builds(
    QueueView,
    name=st.just("q"),
    queue=st.builds(
        QueueClass,
        st.just("q"),
        st.one_of(st.just(float("inf")), st.floats(0.0, 100.0)),
        st.integers(-3, 3),
    ),
    waiting=st.integers(0, 10**7),
    arrived=st.integers(0, 10**7),
    served=st.integers(0, 10**6),
    limit=st.integers(0, 10**7),
    cost_seconds=st.one_of(st.just(0.0), st.floats(1e-6, 100.0)),
    oldest_generated=times,
    newest_generated=times,
    oldest_arrived=times,
    newest_arrived=times,
    waiting_times=st.lists(st.floats(-1e6, 1e6), max_size=5).map(tuple),
    arrived_times=st.lists(st.floats(-1e6, 1e6), max_size=5).map(tuple),
)


@pytest.mark.parametrize(("scheduler_name", "adaptor_name"), PAIRS)
@settings(max_examples=tries(25), deadline=None, derandomize=True)
@given(
    found=st.lists(views, min_size=1, max_size=5),
    budget=st.one_of(st.just(0.0), st.floats(1e-3, 1e3)),
    now=st.floats(-1e6, 1e6),
    cleans=st.booleans(),
)
def test_batches_conserve_tuples_respect_limits_and_are_never_stuck(
    scheduler_name: str, adaptor_name: str, found: list[QueueView], budget: float, now: float, cleans: bool
) -> None:
    queues = [dataclasses.replace(seen, name=str(place)) for place, seen in enumerate(found)]
    policy = BatchPolicy(scheduler(scheduler_name), adaptor(adaptor_name), cleans, overhead_seconds=0.1)
    decision = schedule_batch(queues, budget, now, policy)
    work = 0.0
    for seen, one in zip(queues, decision.queues, strict=True):
        parts = (one.expired, one.front_dropped, one.thinned, one.new_dropped, one.take, one.left)
        assert min(parts) >= 0
        assert sum(parts) == seen.waiting + seen.arrived
        assert one.left <= seen.limit
        assert 0 <= one.keep_ppm <= PPM
        assert 0 <= one.thin_ppm <= PPM
        work += one.take * seen.cost_seconds
    takes = [one.take for one in decision.queues]
    assert work <= budget * (1 + 1e-9) or sum(takes) == 1
    if budget > 0 and not any(takes):
        # Nothing entered the batch, so nothing that could have is left waiting either.
        assert all(one.left == 0 for one in decision.queues)
    assert schedule_batch(queues, budget, now, policy) == decision


lines = st.builds(
    Line,
    level=st.integers(0, 2),
    first=st.integers(-50, 50).map(lambda n: n / 4),
    gap=st.integers(0, 8).map(lambda n: n / 4),
    count=st.integers(0, 30),
    cost_seconds=st.integers(0, 8).map(lambda n: n / 8),
    tie=st.integers(-2, 2),
)


@quick
@given(found=st.lists(lines, max_size=5), budget=st.integers(0, 200).map(lambda n: n / 8))
def test_merge_equals_serving_tuple_by_tuple(found: list[Line], budget: float) -> None:
    # Quarters and eighths are exact in floating point, so the scan and the bisection must agree to the tuple.
    order = merge(
        *([(line.level, line.key(j), line.tie, place) for j in range(line.count)] for place, line in enumerate(found))
    )
    expected, left = [0] * len(found), budget
    for *_, place in order:
        if found[place].cost_seconds > left:
            break
        left -= found[place].cost_seconds
        expected[place] += 1
    assert take_in_order(found, budget) == expected


@quick
@given(
    steps=st.lists(st.tuples(st.integers(1, 5000), st.integers(0, PPM), st.floats(0.0, 1.0)), min_size=1, max_size=40)
)
def test_cursors_pass_every_position_once_and_stay_small(steps: list[tuple[int, int, float]]) -> None:
    cursor, place = Cursor(0), 0
    for size, keep_ppm, share in steps:
        cursor = cursor.extend(cursor.tail + size, keep_ppm=keep_ppm)
        passed, cursor = cursor.advance(int(share * cursor.waiting))
        for part in passed:
            assert part.start == place
            place = part.end
        assert cursor.head == place
        assert len(cursor.to_offset()) <= 2 * 17 + 1
        assert Cursor.from_offset(cursor.to_offset()) == cursor
