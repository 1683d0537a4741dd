from __future__ import annotations

import random

import pytest

from floodway.agent.refining import Refining, tuples_per_operator
from floodway.network.model import Network, Node, Operator, Output, Stream


def network(cheap: float, dear: float) -> Network:
    return Network(
        "n",
        {"s": Stream("s", 1000.0)},
        {"A": Node("A")},
        {
            "o": Operator("o", "A", ("s",), cost=0.001, selectivity=0.5),
            "cheap": Operator("cheap", "A", ("o",), cost=cheap),
            "dear": Operator("dear", "A", ("o",), cost=dear),
        },
        {"q1": Output("q1", "cheap"), "q2": Output("q2", "dear")},
    )


def test_tuples_follow_selectivity_and_drops() -> None:
    counts = tuples_per_operator(network(0.001, 0.001), {"s": 100}, {"o->dear": 0.2})
    assert counts == pytest.approx({"o": 100.0, "cheap": 50.0, "dear": 10.0})


def test_wrong_costs_are_found_and_the_work_in_all_stays_the_same() -> None:
    declared, true = network(0.002, 0.002), {"o": 0.001, "cheap": 0.001, "dear": 0.006}
    refining = Refining(declared)
    rng = random.Random(3)
    cpu, corrected = 0.0, None
    for _ in range(60):
        kept, keeps = {"s": rng.randint(200, 1000)}, {"o->cheap": rng.random(), "o->dear": rng.random()}
        counts = tuples_per_operator(declared, kept, keeps)
        cpu += 0.05 + sum(counts[name] * cost for name, cost in true.items())
        corrected = refining.observe(kept, keeps, cpu) or corrected
    assert refining.costs() == pytest.approx(true, rel=0.15)
    assert corrected is not None
    ratio = (corrected.operators["dear"].cost or 0.0) / (corrected.operators["cheap"].cost or 1.0)
    assert ratio == pytest.approx(6.0, rel=0.2)


def test_right_costs_are_left_alone() -> None:
    declared = network(0.001, 0.006)
    refining = Refining(declared)
    rng = random.Random(5)
    cpu = 0.0
    for _ in range(40):
        kept, keeps = {"s": rng.randint(200, 1000)}, {"o->dear": rng.random()}
        counts = tuples_per_operator(declared, kept, keeps)
        cpu += 0.05 + sum(counts[name] * (declared.operators[name].cost or 0.0) for name in counts)
        assert refining.observe(kept, keeps, cpu) is None
