"""Targets as people write them."""

from __future__ import annotations

import pytest

from floodway.errors import InputError
from floodway.job.options.values import Target


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("2s", Target(2.0)),
        (0.25, Target(0.25)),
        ("mean < 500ms", Target(0.5)),
        ("p95 < 3s", Target(3.0, 0.95)),
        ("P99<=10 seconds", Target(10.0, 0.99)),
        ("p99.9 < 1 minute", Target(60.0, 0.999)),
        (Target(1.0, 0.5), Target(1.0, 0.5)),
    ],
)
def test_a_mean_or_a_percentile_is_read(given: str | float | Target, target: Target) -> None:
    found = Target.of("target_latency", given)
    assert found.seconds == target.seconds
    assert found.quantile == (None if target.quantile is None else pytest.approx(target.quantile))


@pytest.mark.parametrize("target", [Target(2.0), Target(3.0, 0.95), Target(0.25, 0.999)])
def test_what_is_shown_can_be_read_again(target: Target) -> None:
    assert Target.of("--target", str(target)) == target


@pytest.mark.parametrize("wrong", ["", "soon", "0s", "-1", "p95 < ", "p95", "p95 > 3s", "q95 < 3s", True])
def test_what_is_no_target_is_refused_with_an_example(wrong: str | float) -> None:
    with pytest.raises(InputError, match=r"target_latency .* is not a duration") as refused:
        Target.of("target_latency", wrong)
    assert "p95 < 3s" in str(refused.value.hint)


@pytest.mark.parametrize("wrong", ["p0 < 3s", "p20 < 3s"])
def test_a_percentile_below_the_median_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"not between p50 and p99\.9"):
        Target.of("--target", wrong)
