"""Load profiles: exact totals, the right spread, and files that are no traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.spark.log.profiles import bursts, constant, counts, duration, poisson, ramp, steps, trace

TICK = 0.05


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(0, 1e5), seconds=st.floats(0.2, 30), tick=st.floats(0.01, 0.2))
def test_constant_load_never_strays_by_a_tuple(rate: float, seconds: float, tick: float) -> None:
    offered = np.cumsum(list(counts(constant(rate, seconds=seconds), tick=tick)))
    times = np.minimum(np.arange(1, len(offered) + 1) * tick, seconds)
    assert np.all(np.abs(offered - rate * times) <= 1 + 1e-5)


def test_steps_and_ramps_have_exact_totals() -> None:
    assert sum(counts(steps("2:100,3:1000"), tick=TICK)) == 3200
    halves = list(counts(steps("2:100,3:1000"), tick=TICK))
    assert (sum(halves[:40]), sum(halves[40:])) == (200, 3000)
    climb = list(counts(ramp(0, 1000, seconds=10), tick=TICK))
    assert sum(climb) == 5000
    assert sum(climb[:100]) == 1250


def test_poisson_counts_have_equal_mean_and_variance() -> None:
    drawn = np.array(list(poisson(2000, seconds=200, tick=TICK, rng=rng())))
    assert drawn.mean() == pytest.approx(100, rel=0.02)
    assert drawn.var() == pytest.approx(100, rel=0.1)


def test_bursts_keep_the_mean_and_stay_bursty_on_coarse_scales() -> None:
    runs = [np.array(list(bursts(2000, seconds=400, tick=TICK, rng=rng(seed)))) for seed in range(6)]
    assert np.mean([run.mean() for run in runs]) == pytest.approx(100, rel=0.1)
    # Averaging m ticks divides the variance of independent counts by m, of self-similar ones by far less.
    shrink = [run.reshape(-1, 100).mean(axis=1).var() / run.var() for run in runs]
    assert np.mean(shrink) > 0.1
    calm = np.array(list(poisson(2000, seconds=400, tick=TICK, rng=rng())))
    assert calm.reshape(-1, 100).mean(axis=1).var() / calm.var() < 0.05


@pytest.mark.parametrize("make", [poisson, bursts])
def test_the_seed_decides(make: object) -> None:
    assert callable(make)
    first, again, other = (list(make(500, seconds=5, tick=TICK, rng=rng(seed))) for seed in (1, 1, 2))
    assert first == again != other


def test_trace_is_scaled_cut_and_offered_exactly(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("arrivals per bin\n20\n0\n40,x\n7\n")
    pieces = trace(file, bin_seconds=0.1, tick=TICK)
    assert duration(pieces) == pytest.approx(0.4)
    assert list(counts(pieces, tick=TICK)) == [10, 10, 0, 0, 20, 20, 3, 4]
    assert sum(counts(trace(file, bin_seconds=0.1, tick=TICK, scale=10, seconds=0.2), tick=TICK)) == 200
    with pytest.raises(InputError, match="shorter than 9 s"):
        trace(file, bin_seconds=0.1, tick=TICK, seconds=9)


@pytest.mark.parametrize("text", ["", "heading only\n", "1\nx\n", "1\n-2\n", "1\nnan\n"])
def test_what_is_no_trace_is_refused_with_the_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match="trace"):
        trace(tmp_path / "t.csv", bin_seconds=0.1, tick=TICK)
    with pytest.raises(InputError, match="cannot be read"):
        trace(tmp_path / "none.csv", bin_seconds=0.1, tick=TICK)


@pytest.mark.parametrize("text", ["", "10", "10:x", "0:5", "5:-1", "x:5", "1:inf"])
def test_wrong_steps_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        steps(text)
