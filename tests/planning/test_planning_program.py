"""The program's matrices and the keeps recovered from flows."""

from __future__ import annotations

import numpy as np
import pytest

from floodway.errors import InputError, NetworkError
from floodway.network.flow import flows
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning.program import Program
from tests.oracles.plan_checks import example


def test_one_variable_a_free_arc() -> None:
    assert [str(arc) for arc in Program(example("figure1")).variables] == ["s1->a1", "s2->a2"]
    assert [str(arc) for arc in Program(example("split")).variables] == [
        "s->shared",
        "shared->top",
        "shared->bottom",
    ]


@pytest.mark.parametrize(
    "name",
    ["figure1", "split", "two-level-split", "merge-union", "merge-join", "diamond", "bandwidth-memory"],
)
def test_full_flow_uses_what_the_flow_arithmetic_says(name: str) -> None:
    network = example(name)
    program = Program(network)
    rates = {stream: 0.3 + i for i, stream in enumerate(network.streams)}
    expected = flows(network, rates)
    flow = program.use @ program.full_flow @ np.array(list(rates.values()))
    used = {f"{one.kind}:{one.name}": float(part) for one, part in zip(program.resources, flow, strict=True)}
    for node in network.nodes:
        assert used.get(f"cpu:{node}", 0.0) == pytest.approx(expected.load[node])
    for link in network.links:
        key = f"bandwidth:{link.source}->{link.target}"
        assert used[key] == pytest.approx(expected.bandwidth[link.source, link.target])
    assert program.score(program.full_flow @ np.array(list(rates.values()))) == pytest.approx(expected.score)


def test_join_emits_by_the_other_inputs_window() -> None:
    # s·(r1·w2 + r2·w1), long paper (9)-(11).
    join = Operator("j", "A", ("l", "r"), OperatorKind.JOIN, cost=1.0, selectivity=0.1, windows=(2.0, 5.0))
    network = Network(
        "join", {"l": Stream("l"), "r": Stream("r")}, {"A": Node("A")}, {"j": join}, {"q": Output("q", "j")}
    )
    assert Program(network).objective.tolist() == pytest.approx([0.5, 0.2])


def test_keeps_guard_zero_over_zero() -> None:
    program = Program(example("split"))
    assert program.keeps(np.zeros(3), np.zeros(1)).tolist() == [1.0, 1.0, 1.0]
    plain = Program(example("figure1"))
    assert plain.keeps(np.array([0.0, 0.5]), np.array([0.0, 1.0])).tolist() == [1.0, 0.5]


def test_keeps_do_not_process_what_nobody_takes() -> None:
    program = Program(example("split"))
    # 1 tuple/s let in, but the branches take 0.5 and 0.25: the input is lowered to 0.5.
    keeps = dict(
        zip(
            program.network.drop_locations,
            program.keeps(np.array([1.0, 0.5, 0.25]), np.array([2.0])),
            strict=True,
        )
    )
    assert keeps == pytest.approx({"s": 0.25, "shared->top": 1.0, "shared->bottom": 0.5})


def test_headroom_lowers_every_capacity() -> None:
    whole, most = Program(example("bandwidth-memory")), Program(example("bandwidth-memory"), headroom=0.95)
    assert most.capacity.tolist() == pytest.approx((whole.capacity * 0.95).tolist())
    for wrong in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(InputError, match="headroom"):
            Program(example("figure1"), headroom=wrong)


def test_unknown_costs_are_named() -> None:
    network = Network(
        "n", {"s": Stream("s")}, {"A": Node("A")}, {"a": Operator("a", "A", ("s",))}, {"q": Output("q", "a")}
    )
    with pytest.raises(NetworkError, match=r"operators\.a\.cost"):
        Program(network)


def test_overloaded_allows_for_rounding_only() -> None:
    program = Program(example("figure1"))
    assert not program.overloaded(np.array([1 / 3, 0.0]))
    assert program.overloaded(np.array([1 / 3 + 1e-6, 0.0]))
