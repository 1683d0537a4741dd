"""Break every mechanism in turn: a criterion of each result that rests on it must then fail.

Of results that take minutes the outcome is broken instead: what judges it must see that.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from floodway.errors import FloodwayError
from floodway.experiments.registry import EXPERIMENTS, LONG, load
from floodway.experiments.result import Result
from tests.experiments.mutations import MUTATIONS, Mutation
from tests.experiments.outcomes import BROKEN, OUTCOMES, Broken

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
        return Result({}, (), where="nowhere", failed=str(error))


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


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_as_claimed_holds(name: str, tmp_path: Path) -> None:
    result = OUTCOMES[name](tmp_path)
    assert result.holds, result.reason
    assert all(path.stat().st_size > 0 for path in result.save_plots(tmp_path / "plots"))


@pytest.mark.parametrize(
    ("broken", "name"), [pytest.param(one, name, id=f"{one.what}: {name}") for one in BROKEN for name in one.names]
)
def test_a_broken_outcome_fails_its_criteria_and_no_other(broken: Broken, name: str, tmp_path: Path) -> None:
    unmet = [one.text for one in OUTCOMES[name](tmp_path, **broken.given).unmet]
    assert unmet and all(text.startswith(broken.fails) for text in unmet)
    assert len(unmet) == len([one for one in broken.fails if any(text.startswith(one) for text in unmet)])


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_criterion_of_a_long_result_can_fail(name: str, tmp_path: Path) -> None:
    beginnings = tuple(text for one in BROKEN if name in one.names for text in one.fails)
    assert [one.text for one in OUTCOMES[name](tmp_path).criteria if not one.text.startswith(beginnings)] == []


def test_every_result_has_something_that_can_break_it() -> None:
    """A mechanism that is patched, or an outcome that is broken, for each of them; the long ones have outcomes."""
    mutated = {name for one in MUTATIONS for name in one.fails}
    assert set(EXPERIMENTS) == mutated | set(OUTCOMES) and set(LONG) <= set(OUTCOMES)
    assert set(OUTCOMES) == {name for one in BROKEN for name in one.names}
