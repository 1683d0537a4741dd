from __future__ import annotations

import random
from dataclasses import replace

import pytest

from floodway.agent.loop.refinement import Counted, Refinement
from floodway.job.ledger.ledger import LedgerLine
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


def batch(true: Network, tuples: int, keeps: dict[str, float]) -> tuple[list[LedgerLine], dict[str, float]]:
    """A batch's ledger lines in a network that is as `true`, and the tuples that reached each operator."""
    emitted = round(tuples * (true.operators["o"].selectivity or 0.0))
    lines = [LedgerLine("q", 0, "s", "shedder", tuples, tuples, 0)]
    reached = {"o": float(tuples)}
    for name, output in (("cheap", "q1"), ("dear", "q2")):
        kept = round(emitted * keeps[name])
        reached[name] = kept
        lines.append(LedgerLine("q", 0, f"o->{name}", "shedder", emitted, kept, emitted - kept))
        delivered = round(kept * (true.operators[name].selectivity or 0.0))
        lines.append(LedgerLine("q", 0, output, "delivered", delivered, delivered, 0))
    return lines, reached


def learn(declared: Network, true: Network, batches: int, seed: int) -> tuple[Refinement, list[Network]]:
    refining, rng, cpu, told = Refinement(declared), random.Random(seed), 0.0, []
    for _ in range(batches):
        keeps = {"cheap": rng.random(), "dear": rng.random()}
        lines, reached = batch(true, rng.randint(200, 1000), keeps)
        cpu += 0.05 + sum(count * (true.operators[name].cost or 0.0) for name, count in reached.items())
        corrected = refining.observe(Counted.of(declared, lines), cpu)
        told += [corrected] if corrected else []
    return refining, told


def test_what_is_counted_where() -> None:
    lines, _ = batch(network(0.001, 0.001), 100, {"cheap": 1.0, "dear": 0.2})
    counted = Counted.of(network(0.001, 0.001), [*lines, LedgerLine("q", 0, "s", "dead-letter", 100, 98, 2)])
    assert counted.entered == {"s": 98, "o->cheap": 50, "o->dear": 10}
    assert counted.emitted == {"o": 50, "cheap": 50, "dear": 10}


def test_wrong_costs_are_found_and_the_work_in_all_stays_the_same() -> None:
    declared, true = network(0.002, 0.002), network(0.001, 0.006)
    refining, told = learn(declared, true, 60, seed=3)
    assert refining.costs() == pytest.approx({"o": 0.001, "cheap": 0.001, "dear": 0.006}, rel=0.15)
    ratio = (told[-1].operators["dear"].cost or 0.0) / (told[-1].operators["cheap"].cost or 1.0)
    assert ratio == pytest.approx(6.0, rel=0.2)


def test_wrong_selectivities_are_found_and_planned_with() -> None:
    true = network(0.001, 0.001)
    wrong = {name: replace(op, selectivity=0.9) for name, op in true.operators.items()}
    refining, told = learn(replace(true, operators=wrong), true, 20, seed=4)
    assert refining.selectivities() == pytest.approx({"o": 0.5, "cheap": 1.0, "dear": 1.0}, rel=0.01)
    assert told[0].operators["o"].selectivity == pytest.approx(0.5, rel=0.01)


def test_what_is_right_is_left_alone() -> None:
    true = network(0.001, 0.006)
    _, told = learn(true, true, 40, seed=5)
    assert told == []
