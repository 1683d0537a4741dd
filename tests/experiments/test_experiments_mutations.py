"""Break every mechanism in turn: a criterion of each result that rests on it must then fail."""

from __future__ import annotations

from functools import cache

import pytest

from floodway.errors import FloodwayError
from floodway.experiments.registry import load, not_run
from floodway.experiments.result import Result
from tests.experiments.mutations import MUTATIONS, Mutation

CASES = [
    pytest.param(
        one,
        name,
        id=f"{one.mechanism}: {name}",
        marks=() if one.quick else [pytest.mark.slow, *([pytest.mark.spark] if one.on_spark else [])],
    )
    for one in MUTATIONS
    for name in one.fails
]


def judged(name: str) -> Result:
    """The result of one seed, computed anew; as `floodway reproduce` tells it where it cannot be computed."""
    from floodway.experiments.dissp import common

    common.controlled.cache_clear()
    try:
        return load(name).run(seeds=[1], trace=None, progress=lambda _: None)
    except FloodwayError as error:
        return not_run(name, error)


@cache
def intact(name: str) -> Result:
    """The result of one seed before anything is broken."""
    return judged(name)


def met(result: Result, beginning: str) -> bool:
    """Whether the one criterion is met; not that of a result that could not be computed."""
    if result.failed:
        return False
    (found,) = [one for one in result.criteria if one.text.startswith(beginning)]
    return found.met


@pytest.mark.parametrize(("mutation", "name"), CASES)
def test_a_result_fails_without_its_mechanism(mutation: Mutation, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = mutation.fails[name]
    assert mutation.on_spark or met(intact(name), beginning)
    for where, broken in mutation.patches:
        monkeypatch.setattr(where, broken)
    assert not met(judged(name), beginning), f"{name} holds without: {mutation.mechanism}"


def test_every_computed_result_has_a_mechanism_that_can_break_it() -> None:
    """Results that take minutes on Spark, or that only count seconds, are left out by name."""
    from floodway.experiments.registry import EXPERIMENTS, LONG

    covered = {name for one in MUTATIONS for name in one.fails}
    assert set(EXPERIMENTS) - set(LONG) - covered == {"contracts-scale"}
