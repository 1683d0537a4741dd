from __future__ import annotations

import math

import pytest

from floodway.buffering.queues import QueueClass
from floodway.buffering.schedulers import scheduler, schedulers
from floodway.errors import InputError

FAST, SLOW, NONE = QueueClass("s", 0.25), QueueClass("s", 2.0), QueueClass("s")


def order(name: str, waiting: list[tuple[str, QueueClass, float]], cost_seconds: float = 0.01) -> list[str]:
    """Names in service order of (name, class, time); arrival and generation times are equal here."""
    policy = scheduler(name)

    def key(item: tuple[str, QueueClass, float]) -> tuple[int, float, int]:
        rank = policy.rank(item[1], cost_seconds=cost_seconds)
        return rank.level, item[2] + rank.offset_seconds, rank.tie

    return [item[0] for item in sorted(waiting, key=key)]


def test_fifo_goes_by_time_alone() -> None:
    assert order("fifo", [("b", FAST, 1.0), ("a", SLOW, 0.0), ("c", NONE, 2.0)]) == ["a", "b", "c"]


def test_edf_goes_by_generation_plus_deadline_and_puts_missing_deadlines_last() -> None:
    waiting = [("none", NONE, 0.0), ("slow", SLOW, 0.0), ("fast", FAST, 1.0), ("none later", NONE, 0.5)]
    assert order("edf", waiting) == ["fast", "slow", "none", "none later"]


def test_muf_serves_critical_tuples_first_then_least_laxity_then_priority() -> None:
    critical = QueueClass("s", 2.0, priority=1)
    very = QueueClass("s", 2.0, priority=5)
    assert order("muf", [("a", FAST, 0.0), ("b", critical, 0.0), ("c", very, 0.0)]) == ["c", "b", "a"]
    rank = scheduler("muf").rank(SLOW, cost_seconds=0.5)
    assert rank.offset_seconds == pytest.approx(1.5)


def test_strict_priority_beats_any_deadline() -> None:
    urgent = QueueClass("s", priority=3)
    assert order("priority", [("a", FAST, 0.0), ("b", urgent, 9.0)]) == ["b", "a"]


def test_registry_names_match_and_unknown_names_get_a_hint() -> None:
    assert set(schedulers()) == {"fifo", "edf", "muf", "priority"}
    assert all(policy.name == name for name, policy in schedulers().items())
    with pytest.raises(InputError, match="Did you mean fifo"):
        scheduler("fif0")


@pytest.mark.parametrize("deadline", [-0.1, math.nan])
def test_deadlines_that_cannot_be_are_refused(deadline: float) -> None:
    with pytest.raises(InputError, match="cannot be met"):
        QueueClass("s", deadline)


@pytest.mark.parametrize("name", list(schedulers()))
def test_ranks_are_finite_for_every_class(name: str) -> None:
    for queue in (FAST, SLOW, NONE, QueueClass("s", 0.0, priority=-2)):
        assert math.isfinite(scheduler(name).rank(queue, cost_seconds=0.01).offset_seconds)
