from __future__ import annotations

import pytest

from floodway.buffering.adaptors import (
    Overflow,
    PidAdaptor,
    QueueSample,
    RedAdaptor,
    adaptor,
    adaptors,
    split_excess,
)
from floodway.errors import InputError


def test_the_simple_adaptors_only_say_who_goes() -> None:
    sample = QueueSample(waiting=150, limit=150, arrived=1000, served=1)
    for name, overflow in (
        ("tail-drop", Overflow.TAIL),
        ("drop-front", Overflow.FRONT),
        ("random-drop", Overflow.RANDOM),
    ):
        policy = adaptor(name)
        _, shedding = policy.update(policy.initial(), sample)
        assert (shedding.keep, shedding.overflow) == (1.0, overflow)


def test_red_scales_its_thresholds_with_the_limit() -> None:
    red = RedAdaptor()
    keeps = []
    for limit in (150, 1500):
        state = red.initial()
        for _ in range(200):
            state, shedding = red.update(state, QueueSample(waiting=limit // 2, limit=limit))
        keeps.append(shedding.keep)
    # Half full is midway between 0.2 and 0.8 of the limit: half of max_p = 0.1.
    assert keeps == pytest.approx([0.95, 0.95])


def test_pid_drives_the_queue_to_half_its_limit_whatever_the_limit() -> None:
    for limit in (150, 6000):
        pid = PidAdaptor()
        state, queue, keep = pid.initial(), 0.0, 1.0
        arrived, served = 1.2 * limit, 1.0 * limit
        for _ in range(80):
            queue = min(limit, max(0.0, queue + keep * arrived - served))
            state, shedding = pid.update(state, QueueSample(round(queue), limit, round(arrived), round(served)))
            keep = shedding.keep
        assert queue / limit == pytest.approx(0.5, abs=0.02)
        assert shedding.keep == pytest.approx(5 / 6, abs=0.01)


def test_an_empty_period_and_a_limit_of_zero_are_survived() -> None:
    for name, policy in adaptors().items():
        state = policy.initial()
        for limit in (0, 150):
            state, shedding = policy.update(state, QueueSample(waiting=0, limit=limit))
            assert 0.0 <= shedding.keep <= 1.0, name


def test_excess_goes_from_the_right_end() -> None:
    assert split_excess(Overflow.TAIL, old=90, new=30, limit=100) == (0, 20)
    assert split_excess(Overflow.FRONT, old=90, new=30, limit=100) == (20, 0)
    assert split_excess(Overflow.RANDOM, old=90, new=30, limit=100) == (15, 5)
    assert split_excess(Overflow.TAIL, old=90, new=30, limit=50) == (40, 30)
    assert split_excess(Overflow.FRONT, old=90, new=30, limit=20) == (90, 10)
    assert split_excess(Overflow.RANDOM, old=0, new=0, limit=0) == (0, 0)


def test_bad_samples_are_refused() -> None:
    with pytest.raises(InputError, match="queue limit of -1"):
        QueueSample(waiting=0, limit=-1)
    with pytest.raises(InputError, match="fewer than no tuples"):
        QueueSample(waiting=-1, limit=1)
    with pytest.raises(InputError, match="Did you mean tail-drop"):
        adaptor("taildrop")
