"""Cost functions and the prices that follow from them: checked values, convexity, bad input."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from floodway.contracts.cost import (
    LEAST,
    PAPER_TASK,
    CostFunction,
    InFlight,
    Learning,
    MeasuredCost,
    added_cost,
    chain_range,
    copies,
    delay_seconds,
    delta,
    saved_cost,
    unit_price,
    worth_accepting,
    worth_offering,
)
from floodway.contracts.load import Load, Task
from floodway.errors import ContractError

COSTS = InFlight()


def test_marginal_costs_of_the_paper() -> None:
    found = [round(unit_price(COSTS, PAPER_TASK, count), 4) for count in (12, 13, 14, 15)]
    assert found == [0.1866, 0.2132, 0.2464, 0.2888]


def test_in_flight_tuples_are_those_of_two_queues() -> None:
    assert COSTS.cost(Load(cpu=0.35, link=0.56)) == pytest.approx(0.35 / 0.65 + 0.56 / 0.44)
    assert COSTS.cost(Load()) == 0.0


def test_beyond_the_knee_the_cost_is_finite_and_goes_on_without_a_jump() -> None:
    knee, step = 0.99, 1e-6
    below, at, above = (COSTS.cost(Load(cpu=knee + shift)) for shift in (-step, 0.0, step))
    assert at - below == pytest.approx(above - at, rel=1e-3)
    assert COSTS.cost(Load(cpu=3.0)) < float("inf")
    assert added_cost(COSTS, Load(cpu=2.0), PAPER_TASK) > added_cost(COSTS, Load(cpu=0.9), PAPER_TASK)


def test_keeping_the_last_task_costs_what_taking_it_cost() -> None:
    taken = added_cost(COSTS, copies(PAPER_TASK, 13), PAPER_TASK)
    assert saved_cost(COSTS, copies(PAPER_TASK, 14), PAPER_TASK) == pytest.approx(taken)


def test_a_cost_equal_to_the_price_is_accepted_and_not_offered() -> None:
    price = unit_price(COSTS, PAPER_TASK, 14)
    assert worth_accepting(price, price)
    assert not worth_offering(price, price)


def test_the_range_of_a_chain_is_the_paper_s_delta() -> None:
    low, high = chain_range(COSTS, PAPER_TASK, 14, 3)
    assert high == pytest.approx(unit_price(COSTS, PAPER_TASK, 14))
    assert low == pytest.approx(unit_price(COSTS, PAPER_TASK, 12))
    assert delta(COSTS, PAPER_TASK, 14, 2) == pytest.approx(high - low)


def test_little_s_law_gives_the_delay() -> None:
    load = Load(cpu=0.5, link=0.0, rate=500.0)
    assert delay_seconds(COSTS, load) == pytest.approx(1.0 / 500.0)
    assert delay_seconds(COSTS, Load(cpu=0.5)) == 0.0


def test_a_measured_cost_is_convex_and_never_above_a_sample() -> None:
    samples = [(0.2, 0.3), (0.4, 0.5), (0.5, 2.0), (0.8, 4.0), (0.9, 9.0)]
    found = MeasuredCost.fit(samples)
    for load, cost in samples:
        assert found.cost(Load(cpu=load)) <= cost + 1e-12
    slopes = [found.cost(Load(cpu=x + 0.01)) - found.cost(Load(cpu=x)) for x in (0.0, 0.3, 0.6, 0.85, 1.5)]
    assert all(after >= before - 1e-12 for before, after in pairwise(slopes))
    assert slopes[0] > 0


def learnt(samples: list[tuple[float, float]], *, times: int = LEAST, queues: InFlight = COSTS) -> CostFunction:
    seen = Learning(queues)
    for load, in_flight in samples * times:
        seen = seen.seen(load, in_flight)
    return seen.costs()


def test_what_is_learnt_is_what_was_measured_and_never_less_than_queues_say() -> None:
    found = learnt([(0.125, 10.0), (0.525, 50.0), (0.925, 400.0)])
    for load, in_flight in ((0.125, 10.0), (0.525, 50.0), (0.925, 400.0)):
        assert found.cost(Load(cpu=load)) == pytest.approx(in_flight, abs=2.5)
    assert found.cost(Load(cpu=0.3, link=0.5)) == pytest.approx(found.cost(Load(cpu=0.3)) + 1.0)
    # Where nothing was measured, at the CPU's limit, the queue warns.
    calm = learnt([(0.125, 0.01)])
    assert calm.cost(Load(cpu=0.9)) == pytest.approx(COSTS.cost(Load(cpu=0.9)))
    for costs in (found, calm):
        marginal = [added_cost(costs, Load(cpu=place / 50), PAPER_TASK) for place in range(75)]
        assert all(after >= before - 1e-9 for before, after in pairwise(marginal))


def test_a_burst_teaches_nothing_and_old_samples_fade() -> None:
    assert learnt([(0.5, 50.0)], times=LEAST - 1) == COSTS
    assert learnt([(0.0, 50.0)]) == COSTS
    half = InFlight(cpu=0.5)
    changed = learnt([(0.26, 50.0)] * 10 + [(0.26, 100.0)] * 40, times=1, queues=half)
    assert changed.cost(Load(cpu=0.2625)) == pytest.approx(100.0, rel=0.02)


def test_a_link_without_limit_costs_nothing() -> None:
    free = InFlight(link=float("inf"))
    assert free.cost(Load(cpu=0.5, link=1e9)) == pytest.approx(1.0)


def test_falling_samples_count_as_flat() -> None:
    assert MeasuredCost(((0.0, 1.0), (0.5, 0.5), (1.0, 2.0))).cost(Load(cpu=0.5)) == 0.0


@pytest.mark.parametrize("samples", [[], [(0.0, 1.0)], [(-1.0, 1.0)], [(0.5, float("nan"))], [(float("inf"), 1.0)]])
def test_samples_that_say_nothing_are_refused(samples: list[tuple[float, float]]) -> None:
    with pytest.raises(ContractError):
        MeasuredCost.fit(samples)


def test_bad_capacities_counts_and_prices_are_refused() -> None:
    for name, value in (("cpu", 0.0), ("link", float("nan")), ("knee", 1.0)):
        with pytest.raises(ContractError, match=name):
            replace(COSTS, **{name: value})
    with pytest.raises(ContractError, match="counted from 1"):
        unit_price(COSTS, PAPER_TASK, 0)
    with pytest.raises(ContractError, match="cannot leave"):
        delta(COSTS, PAPER_TASK, 3, 3)
    with pytest.raises(ContractError, match="moves nothing"):
        chain_range(COSTS, PAPER_TASK, 14, 0)


@pytest.mark.parametrize(
    ("name", "load", "units"),
    [("", Load(), 1.0), ("t", Load(cpu=-1.0), 1.0), ("t", Load(link=float("nan")), 1.0), ("t", Load(), 0.0)],
)
def test_bad_tasks_are_refused(name: str, load: Load, units: float) -> None:
    with pytest.raises(ContractError):
        Task(name, load, units)
