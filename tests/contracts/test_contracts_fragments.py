"""Operators become tasks that are cut where the least data flows."""

from __future__ import annotations

import pytest

from floodway.contracts.errors import ContractError
from floodway.contracts.fragments import fragments
from floodway.network.model import Network, Node, Operator, Output, Stream


def chain_network() -> Network:
    """s -> a -> b -> c -> q on node A, where b lets a tenth through, and an unconnected d."""
    return Network(
        "n",
        {"s": Stream("s"), "t": Stream("t")},
        {"A": Node("A"), "B": Node("B")},
        {
            "a": Operator("a", "A", ("s",), cost=0.001),
            "b": Operator("b", "A", ("a",), cost=0.001, selectivity=0.1),
            "c": Operator("c", "A", ("b",), cost=0.01),
            "d": Operator("d", "A", ("t",), cost=0.002),
            "e": Operator("e", "B", ("c",), cost=0.01),
        },
        {"q": Output("q", "e"), "p": Output("p", "d")},
    )


RATES = {"s": 100.0, "t": 50.0}


def test_the_heaviest_stream_stays_inside_a_task() -> None:
    found = fragments(chain_network(), "A", RATES, max_cpu=0.2)
    assert {task.name for task in found} == {"a+b", "c", "d"}
    by = {task.name: task for task in found}
    assert by["a+b"].load.cpu == pytest.approx(0.2)
    assert by["a+b"].load.link == pytest.approx(10.0 * 100.0), "only what leaves the task counts"
    assert by["a+b"].load.rate == pytest.approx(100.0)
    assert by["a+b"].query == by["c"].query != by["d"].query


def test_with_room_a_query_is_one_task() -> None:
    found = fragments(chain_network(), "A", RATES, max_cpu=1.0, link_bytes=1e6)
    assert {task.name for task in found} == {"a+b+c", "d"}


def test_every_operator_is_in_one_task_and_the_load_is_kept() -> None:
    for limit in (0.01, 0.15, 0.25, 10.0):
        found = fragments(chain_network(), "A", RATES, max_cpu=limit)
        names = [name for task in found for name in task.name.split("+")]
        assert sorted(names) == ["a", "b", "c", "d"]
        assert sum(task.load.cpu for task in found) == pytest.approx(0.1 + 0.1 + 0.1 + 0.1)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ContractError, match="no node 'Z'"):
        fragments(chain_network(), "Z", RATES, max_cpu=1.0)
    with pytest.raises(ContractError, match="max_cpu"):
        fragments(chain_network(), "A", RATES, max_cpu=0.0)
