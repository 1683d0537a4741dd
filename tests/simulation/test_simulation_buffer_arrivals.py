from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from floodway.errors import InputError
from floodway.simulation.arrivals import (
    Tuples,
    binned,
    cost_factors,
    draw,
    hurst,
    poisson,
    read_trace,
    self_similar,
    spread,
)


def test_poisson_counts_have_their_mean_as_variance() -> None:
    times = poisson(200.0, 500.0, np.random.default_rng(1))
    counts = binned(times, 500.0)
    assert np.all(np.diff(times) >= 0)
    assert counts.mean() == pytest.approx(20.0, rel=0.02)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)


def test_self_similar_traffic_has_long_memory_and_poisson_has_none() -> None:
    seeds = range(5)
    bursty = [hurst(binned(self_similar(120.0, 1000.0, np.random.default_rng(s)), 1000.0)) for s in seeds]
    even = [hurst(binned(poisson(120.0, 1000.0, np.random.default_rng(s)), 1000.0)) for s in seeds]
    assert np.mean(even) == pytest.approx(0.5, abs=0.06)
    assert min(bursty) > max(even)
    rate = len(self_similar(120.0, 1000.0, np.random.default_rng(9))) / 1000.0
    assert rate == pytest.approx(120.0, rel=0.02)


def test_spread_keeps_counts_per_bin() -> None:
    counts = np.array([3, 0, 5])
    assert binned(spread(counts, 0.1, np.random.default_rng(1)), 0.3).tolist() == [3, 0, 5]


def test_same_seed_same_traffic() -> None:
    first, second = (self_similar(50.0, 100.0, np.random.default_rng(4)) for _ in range(2))
    assert np.array_equal(first, second)


def test_trace_header_gives_the_bin_and_windows_wrap(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrivals per 250 ms bin\n1\n2\n3\n")
    trace = read_trace(path)
    assert (trace.bin_seconds, trace.counts.tolist(), trace.rate) == (0.25, [1, 2, 3], 8.0)
    assert trace.window(0.5, 0.75).counts.tolist() == [3, 1, 2]
    path.write_text("4\n4\n")
    assert read_trace(path).bin_seconds == 0.1


@pytest.mark.parametrize(
    ("text", "message"), [("1\nx\n", "line 2: 'x'"), ("counts\n", "no arrivals"), ("1\n-1\n", "line 2: '-1'")]
)
def test_bad_traces_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_trace(path)


def test_other_bad_input() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(Path("no-such-file.csv"))
    with pytest.raises(InputError, match="arrivals at -1"):
        poisson(-1.0, 1.0, rng)
    with pytest.raises(InputError, match="Hurst parameter 1"):
        self_similar(1.0, 1.0, rng, target_hurst=1.0)
    with pytest.raises(InputError, match="cannot be measured"):
        hurst(np.full(10_000, 7))
    with pytest.raises(InputError, match="E = 3"):
        cost_factors(3, 1, rng)
    unsorted = draw(np.array([0.0, 1.0]), rng, mean_cost_seconds=0.1)
    with pytest.raises(InputError, match="order of arrival"):
        Tuples(unsorted.arrived[::-1], unsorted.generated, unsorted.queue, unsorted.cost, unsorted.classes)


@pytest.mark.parametrize(("precision", "low", "high"), [(0, 1.0, 1.0), (1, 0.3, 1.7), (2, 0.1, 4.1)])
def test_cost_factors_have_mean_one_and_the_paper_s_range(precision: int, low: float, high: float) -> None:
    factors = cost_factors(precision, 50_000, np.random.default_rng(1))
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert factors.min() >= low
    assert factors.max() <= high
