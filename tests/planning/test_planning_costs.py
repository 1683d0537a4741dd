"""Costs from sums of CPU time: the solver against scipy, and what happens to operators that cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls

from floodway.errors import InputError
from floodway.planning.costs import Beliefs, CostRefiner, nnls, slope

Batch = tuple[Mapping[str, float], float]


def refine(prior_costs: Mapping[str, float], batches: Iterable[Batch]) -> dict[str, float]:
    """Costs after all these batches, each (tuples per operator, CPU-seconds), oldest first; none is warm-up."""
    refiner = CostRefiner(prior_costs, warmup_batches=0)
    for counts, cpu_seconds in batches:
        refiner.observe(counts, cpu_seconds)
    return refiner.costs()


TRUTH = {"parse": 5e-4, "filter": 1e-4, "join": 2e-3}


def batches(
    rng: np.random.Generator, count: int, costs: dict[str, float], *, overhead: float = 0.03, noise: float = 0.02
) -> list[tuple[dict[str, float], float]]:
    made = []
    for _ in range(count):
        counts = {name: float(rng.integers(200, 3000)) for name in costs}
        seconds = overhead + sum(costs[name] * number for name, number in counts.items())
        made.append((counts, seconds * float(rng.normal(1.0, noise))))
    return made


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 12), columns=st.integers(1, 8))
def test_nnls_agrees_with_scipy(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.vstack([rng.normal(size=(rows, columns)), 0.1 * np.eye(columns)])
    values = rng.normal(size=rows + columns)
    expected, _ = scipy_nnls(matrix, values)
    found = nnls(matrix.T @ matrix, matrix.T @ values)
    assert np.all(found >= 0)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 10))
def test_nnls_meets_the_optimality_conditions_on_nearly_singular_problems(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((2, size))  # far fewer batches than operators: only the ridge makes it definite
    gram = matrix.T @ matrix + 1e-6 * np.eye(size)
    target = rng.normal(size=size)
    x = nnls(gram, target)
    gradient = gram @ x - target
    assert np.all(x >= 0)
    assert np.all(gradient >= -1e-6) and np.all(np.abs(gradient[x > 0]) < 1e-6)


def test_batches_that_differ_reveal_every_cost_whatever_the_prior() -> None:
    prior = {"parse": 2e-3, "filter": 1e-3, "join": 2e-4}  # off by factors of 4, 10 and 10
    found = refine(prior, batches(np.random.default_rng(1), 80, TRUTH))
    for name in ("parse", "join"):
        assert found[name] == pytest.approx(TRUTH[name], rel=0.1)
    assert found["filter"] == pytest.approx(TRUTH["filter"], abs=6e-5)  # 4% of the CPU: found to about its noise


def test_operators_that_always_see_the_same_tuples_keep_the_proportions_of_the_prior() -> None:
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(60):
        number = float(rng.integers(500, 3000))
        seen.append(({"a": number, "b": number}, 0.03 + (1.2e-3 + 0.4e-3) * number))
    found = refine({"a": 6e-4, "b": 2e-4}, seen)
    assert found["a"] + found["b"] == pytest.approx(1.6e-3, rel=0.05)
    # The least change that fits, each in its own units: the dear one takes up most of it.
    assert found["a"] > 2.5 * found["b"]


def test_an_operator_without_tuples_keeps_its_prior() -> None:
    seen = [({"a": float(n)}, 2e-3 * n) for n in range(100, 3000, 100)]
    assert refine({"a": 1e-3, "idle": 7e-3}, seen)["idle"] == pytest.approx(7e-3)


def test_a_change_of_cost_is_followed_and_the_past_forgotten() -> None:
    rng = np.random.default_rng(3)
    refiner = CostRefiner(TRUTH, warmup_batches=0, beliefs=Beliefs(forgetting=0.9))
    for counts, seconds in batches(rng, 60, TRUTH):
        refiner.observe(counts, seconds)
    dearer = {**TRUTH, "parse": 3 * TRUTH["parse"]}
    for counts, seconds in batches(rng, 60, dearer):
        refiner.observe(counts, seconds)
    assert refiner.costs()["parse"] == pytest.approx(dearer["parse"], rel=0.1)
    assert refiner.costs()["join"] == pytest.approx(TRUTH["join"], rel=0.1)


def test_the_overhead_of_a_batch_is_not_charged_to_its_tuples() -> None:
    refiner = CostRefiner({"a": 1e-3}, warmup_batches=0)
    for number in (100, 2000, 500, 3000, 1500, 50) * 10:
        refiner.observe({"a": number}, 0.3 + 1e-3 * number)
    assert refiner.overhead_seconds == pytest.approx(0.3, rel=0.1)
    assert refiner.costs()["a"] == pytest.approx(1e-3, rel=0.05)


def test_costs_never_turn_negative() -> None:
    rng = np.random.default_rng(4)
    refiner = CostRefiner({"a": 1e-3, "b": 1e-3}, warmup_batches=0)
    for _ in range(50):
        a, b = rng.integers(100, 1000, 2)
        refiner.observe({"a": float(a), "b": float(b)}, 2e-3 * float(a) + 1e-6 * float(rng.random()))
        assert all(cost >= 0 for cost in refiner.costs().values())
    assert refiner.costs()["b"] < 1e-4


def test_warm_up_and_impossible_measurements_teach_nothing() -> None:
    refiner = CostRefiner({"a": 1e-3}, warmup_batches=1)
    refiner.observe({"a": 1000}, 50.0)
    for seconds in (-1.0, math.nan, math.inf):
        refiner.observe({"a": 1000}, seconds)
    assert refiner.batches == 0 and refiner.costs() == {"a": 1e-3}
    refiner.observe({"a": 1000}, 2.0)
    assert refiner.batches == 1 and refiner.costs()["a"] > 1.5e-3


def test_a_prior_of_nothing_can_still_learn() -> None:
    seen = [({"a": float(n)}, 1e-5 * n) for n in (10_000, 60_000, 20_000, 50_000) * 30]
    assert refine({"a": 0.0}, seen)["a"] == pytest.approx(1e-5, rel=0.1)


def test_wrong_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"no operator 'b' to refine\. Known: a"):
        CostRefiner({"a": 1.0}).observe({"b": 1}, 1.0)
    with pytest.raises(InputError, match="cost of 'a' is -1"):
        CostRefiner({"a": -1.0})
    with pytest.raises(InputError, match="forgetting 0"):
        Beliefs(forgetting=0.0)
    with pytest.raises(InputError, match="make no line"):
        slope([5, 5], [1.0, 2.0])


def test_the_slope_leaves_the_cost_of_a_job_out() -> None:
    assert slope([1000, 2000, 4000], [7.0 + 0.5, 7.0 + 1.0, 7.0 + 2.0]) == pytest.approx(5e-4)
