from __future__ import annotations

import math

import pytest

from floodway.buffering.managers import Allocation, Demand, allocate, reallocate
from floodway.errors import InputError


def test_longer_queues_for_higher_rate_lower_cost_higher_priority() -> None:
    base = Demand(100.0, 0.01)
    for better in (Demand(200.0, 0.01), Demand(100.0, 0.005), Demand(100.0, 0.01, priority=1)):
        limits = allocate(300, {"base": base, "better": better}, floor=0).limits
        assert limits == {"base": 100, "better": 200}


def test_limits_add_up_and_respect_the_floor() -> None:
    demands = {str(i): Demand(rate, 0.01) for i, rate in enumerate((1.0, 3.0, 7.0, 0.0))}
    limits = allocate(101, demands, floor=5).limits
    assert sum(limits.values()) == 101
    assert limits["3"] == 5


def test_all_idle_share_equally() -> None:
    assert allocate(10, {"a": Demand(0.0, 0.01), "b": Demand(0.0, 0.01)}, floor=0).limits == {"a": 5, "b": 5}


def test_small_swings_keep_the_allocation_and_remarkable_changes_do_not() -> None:
    first = allocate(150, {"a": Demand(100.0, 0.01), "b": Demand(100.0, 0.01)})
    swing = {"a": Demand(190.0, 0.01), "b": Demand(60.0, 0.01)}
    assert reallocate(first, 150, swing) is first
    surge = {"a": Demand(201.0, 0.01), "b": Demand(100.0, 0.01)}
    assert reallocate(first, 150, surge).limits["a"] > first.limits["a"]


def test_joining_leaving_and_new_totals_reallocate() -> None:
    first = allocate(150, {"a": Demand(100.0, 0.01)})
    both = {"a": Demand(100.0, 0.01), "b": Demand(100.0, 0.01)}
    second = reallocate(first, 150, both)
    assert second.limits == {"a": 75, "b": 75}
    assert reallocate(second, 150, {"a": Demand(100.0, 0.01)}).limits == {"a": 150}
    assert sum(reallocate(second, 200, both).limits.values()) == 200
    assert reallocate(Allocation(), 0, {}).limits == {}


def test_bad_demands_are_refused() -> None:
    with pytest.raises(InputError, match="arrival rate"):
        allocate(10, {"a": Demand(math.nan, 0.01)})
    with pytest.raises(InputError, match="tuple cost"):
        allocate(10, {"a": Demand(1.0, -0.01)})
    with pytest.raises(InputError, match="cannot give 2 queues"):
        allocate(1, {"a": Demand(1.0, 0.01), "b": Demand(1.0, 0.01)})
    with pytest.raises(InputError, match="factor"):
        reallocate(Allocation(), 1, {}, factor=0.5)
