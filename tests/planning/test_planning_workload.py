"""Probabilities of boxes, against counting samples."""

from __future__ import annotations

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.planning.workload import Empirical, Exponential, Uniform, Workload

SEEN = np.random.default_rng(5).gamma(2.0, 1.0, (5000, 2))
WORKLOADS = {"exponential": Exponential([1.0, 3.0]), "uniform": Uniform([2.0, 5.0]), "empirical": Empirical(SEEN)}
BOXES = [([0.0, 0.0], [1.0, 1.0]), ([0.5, 1.0], [np.inf, 4.0]), ([3.0, 0.0], [9.0, np.inf]), ([1.0, 2.0], [1.5, 2.5])]


@pytest.mark.parametrize("name", WORKLOADS)
def test_boxes_are_as_likely_as_samples_fall_in_them(name: str) -> None:
    workload = WORKLOADS[name]
    samples = workload.sample(40_000, np.random.default_rng(8))
    for lower, upper in BOXES:
        share = np.all((samples >= lower) & (samples < upper), axis=1).mean()
        assert workload.probability(np.array(lower), np.array(upper)) == pytest.approx(share, abs=0.012)


@pytest.mark.parametrize("name", WORKLOADS)
def test_halves_add_up(name: str) -> None:
    workload: Workload = WORKLOADS[name]
    low, high = np.zeros(2), np.full(2, np.inf)
    cut, cut_low = high.copy(), low.copy()
    cut[0] = cut_low[0] = 1.3
    assert workload.probability(low, high) == pytest.approx(1.0)
    assert workload.probability(low, cut) + workload.probability(cut_low, high) == pytest.approx(1.0)


def test_a_trace_serves_all_streams_shifted_and_scaled() -> None:
    workload = Empirical.of_trace([0.0, 0.0, 4.0, 4.0], 2, means=[1.0, 10.0])
    # The second stream is half the trace later, so never in a burst with the first.
    assert workload.probability(np.array([1.0, 1.0]), np.array([np.inf, np.inf])) == 0.0
    assert workload.probability(np.array([1.0, 0.0]), np.array([np.inf, np.inf])) == 0.5
    assert workload.sample(2000, np.random.default_rng(0)).mean(axis=0) == pytest.approx([1.0, 10.0], rel=0.1)


def test_bad_workloads_are_refused() -> None:
    for wrong in ([], [0.0], [-1.0], [float("nan")]):
        with pytest.raises(InputError):
            Exponential(wrong)
        with pytest.raises(InputError):
            Uniform(wrong)
    for samples in ([], [1.0, 2.0], [[-1.0]], [[float("inf")]]):
        with pytest.raises(InputError):
            Empirical(samples)
    with pytest.raises(InputError, match="trace"):
        Empirical.of_trace([0.0, 0.0], 2)
