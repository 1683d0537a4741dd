"""Break every mechanism in turn: a criterion of each result that rests on it must then fail."""

from __future__ import annotations

from functools import cache

import pytest

from floodway.experiments.registry import load
from floodway.experiments.result import Criterion, Result
from tests.experiments.mutations import MUTATIONS, Mutation

CASES = [
    pytest.param(one, name, id=f"{one.mechanism}: {name}", marks=() if one.quick else pytest.mark.slow)
    for one in MUTATIONS
    for name in one.fails
]


def judged(name: str) -> Result:
    """The result of one seed, computed anew."""
    from floodway.experiments.dissp import common

    common.controlled.cache_clear()
    return load(name).run(seeds=[1], trace=None, progress=lambda _: None)


@cache
def intact(name: str) -> Result:
    """The result of one seed before anything is broken."""
    return judged(name)


def criterion(result: Result, beginning: str) -> Criterion:
    (found,) = [one for one in result.criteria if one.text.startswith(beginning)]
    return found


@pytest.mark.parametrize(("mutation", "name"), CASES)
def test_a_result_fails_without_its_mechanism(mutation: Mutation, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = mutation.fails[name]
    assert criterion(intact(name), beginning).met
    for where, broken in mutation.patches:
        monkeypatch.setattr(where, broken)
    assert not criterion(judged(name), beginning).met, f"{name} holds without: {mutation.mechanism}"


def test_every_computed_result_has_a_mechanism_that_can_break_it() -> None:
    """Results that take minutes on Spark, or that only count seconds, are left out by name."""
    from floodway.experiments.registry import EXPERIMENTS, LONG

    covered = {name for one in MUTATIONS for name in one.fails}
    assert set(EXPERIMENTS) - set(LONG) - covered == {"contracts-scale"}
