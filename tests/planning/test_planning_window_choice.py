"""Where to drop when windows are dropped whole: against all that can be tried, and by every kind of planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from floodway.network.flow import flows
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.plan import Planner
from floodway.planning.windows.window_choice import WindowChoice, WindowChooser
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_shapes import drop_kind, location_consumers, windowed_plan
from tests.oracles.window_knapsack import WindowedStream, most_earned, most_earned_at

SECOND = 1_000_000
CASES = 60


def counting(streams: Mapping[str, WindowedStream], cpu: float) -> Network:
    """Every stream through one operator on one node, and through an aggregate that costs nothing if it has windows."""
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for name, one in streams.items():
        last = f"o{name}"
        operators[last] = Operator(last, "A", (name,), cost=one.cost)
        if one.shape is not None:
            size, slide = one.shape.size_us / SECOND, one.shape.slide_us / SECOND
            kind = OperatorKind.AGGREGATE
            operators[f"a{name}"] = Operator(f"a{name}", "A", (last,), kind=kind, cost=0.0, window=size, slide=slide)
            last = f"a{name}"
        outputs[f"q{name}"] = Output(f"q{name}", last, weight=one.weight)
    return Network("n", {name: Stream(name, 4.0) for name in streams}, {"A": Node("A", cpu=cpu)}, operators, outputs)


def shapes_of(network: Network) -> dict[str, WindowShape]:
    kinds = {at: drop_kind(network, location_consumers(network, at)) for at in network.drop_locations}
    return {at: kind.shape for at, kind in kinds.items() if kind.shape is not None}


def held(planner: Planner, shares: Mapping[str, float]) -> WindowChoice:
    """A choice in force that leaves streams out."""
    return WindowChoice(planner.plan(shares), shares, 0.0)


def windows(size: int, slide: int) -> WindowShape:
    return WindowShape(size * SECOND, slide * SECOND)


EVEN = {"s": WindowedStream(1.0, 1.0, 1.0, windows(10, 5)), "t": WindowedStream(1.0, 1.0, 1.0, windows(10, 5))}


@pytest.mark.parametrize("planner", ["exact", "solver", "fit", "dfit"])
def test_of_two_equal_streams_one_is_kept_whole(planner: str) -> None:
    network = counting(EVEN, cpu=1.0)
    rates, shapes = {"s": 1.0, "t": 1.0}, shapes_of(network)
    ask = make_planner(network, planner, epsilon=0.02).plan
    found = WindowChooser(network, shapes).choose(ask, rates)
    assert sorted(found.plan.keeps.values()) == pytest.approx([0.0, 1.0], abs=0.03)
    assert found.worth > 0.97
    even = windowed_plan(network, replace(found.plan, keeps={"s": 0.5, "t": 0.5}), shapes)
    assert even.score == pytest.approx(2.0 * (1.0 - 0.5**0.5), rel=1e-5)


def test_windows_that_do_not_overlap_are_dropped_as_the_planner_says() -> None:
    streams = {name: replace(one, shape=windows(10, 10)) for name, one in EVEN.items()}
    network = counting(streams, cpu=1.0)
    planner, rates = make_planner(network), {"s": 1.0, "t": 1.0}
    found = WindowChooser(network, shapes_of(network)).choose(planner.plan, rates)
    assert found.plan == planner.plan(rates)


def test_nothing_is_held_back_where_all_fits() -> None:
    network = counting(EVEN, cpu=3.0)
    chooser, planner = WindowChooser(network, shapes_of(network)), make_planner(network)
    found = chooser.choose(planner.plan, {"s": 1.0, "t": 1.0}, held(planner, {"s": 1.0, "t": 0.0}))
    assert set(found.plan.keeps.values()) == {1.0}


def test_a_choice_stays_while_it_earns_nearly_as_much() -> None:
    network = counting(EVEN, cpu=1.0)
    chooser, planner = WindowChooser(network, shapes_of(network)), make_planner(network)
    for shares in ({"s": 1.0, "t": 0.0}, {"s": 0.0, "t": 1.0}):
        for more in (1.0, 1.04):
            rates = {name: more if share == 0.0 else 1.0 for name, share in shares.items()}
            assert chooser.choose(planner.plan, rates, held(planner, shares)).shares == shares
    turned = chooser.choose(planner.plan, {"s": 0.5, "t": 1.0}, held(planner, {"s": 1.0, "t": 0.0}))
    assert turned.plan.keeps["t"] == 1.0


def test_against_all_that_can_be_tried() -> None:
    rng = np.random.default_rng(17)
    shares = []
    for _ in range(CASES):
        streams = {
            f"s{i}": WindowedStream(
                rate=float(rng.choice([1.0, rng.uniform(0.2, 2.0)])),
                cost=float(rng.choice([0.5, 1.0, 3.0, rng.uniform(0.5, 2.0)])),
                weight=float(rng.choice([1.0, 2.0, rng.uniform(0.5, 2.0)])),
                shape=[None, windows(10, 10), windows(10, 5), windows(20, 5), windows(10, 1)][rng.integers(5)],
            )
            for i in range(rng.integers(2, 5))
        }
        asked = sum(one.rate * one.cost for one in streams.values())
        network = counting(streams, cpu=float(rng.uniform(0.3, 0.9)) * asked)
        rates = {name: one.rate for name, one in streams.items()}
        planner, shapes = make_planner(network), shapes_of(network)
        found = WindowChooser(network, shapes).choose(planner.plan, rates)
        load = sum(one.rate * one.cost * found.plan.keeps[name] for name, one in streams.items())
        assert load <= network.nodes["A"].cpu * (1.0 + 1e-6)
        best = most_earned(list(streams.values()), network.nodes["A"].cpu)
        assert found.worth >= windowed_plan(network, planner.plan(rates), shapes).score * (1.0 - 1e-9)
        shares.append(found.worth / best)
        assert 0.9 <= shares[-1] <= 1.0 + 1e-5, streams
    assert np.mean(shares) > 0.99


def splits(streams: Mapping[str, float], branches: Mapping[str, Mapping[str, WindowedStream]]) -> Network:
    """Streams of these costs, each read by an operator with branches that count windows, on one node."""
    operators: dict[str, Operator] = {}
    outputs: dict[str, Output] = {}
    for name, cost in streams.items():
        operators[f"o{name}"] = Operator(f"o{name}", "A", (name,), cost=cost)
        counted = counting(branches[name], cpu=1.0)
        for one in counted.operators.values():
            inputs = tuple(f"o{name}" if producer in branches[name] else producer for producer in one.inputs)
            operators[one.name] = replace(one, inputs=inputs)
        outputs |= counted.outputs
    return Network("n", {name: Stream(name, 4.0) for name in streams}, {"A": Node("A")}, operators, outputs)


def with_cpu(network: Network, cpu: float) -> Network:
    return replace(network, nodes={"A": Node("A", cpu=cpu)})


@pytest.mark.parametrize("planner", ["exact", "solver", "fit", "dfit"])
@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_of_two_equal_branches_one_is_kept_whole(planner: str, shared: float) -> None:
    network = with_cpu(splits({"u": shared}, {"u": EVEN}), 1.0 + shared)
    rates, shapes = {"u": 1.0}, shapes_of(network)
    chooser = WindowChooser(network, shapes)
    asked = make_planner(network, planner, epsilon=0.02)
    found = chooser.choose(asked.plan, rates)
    assert found.plan.keeps["u"] > 0.97
    assert sorted((found.plan.keeps["ou->os"], found.plan.keeps["ou->ot"])) == pytest.approx([0.0, 1.0], abs=0.03)
    assert found.worth > 0.97
    at_more = chooser.again(asked.plan, {"u": 1.04}, found)
    assert flows(network, {"u": 1.04}, at_more.plan.keeps).load["A"] <= (1.0 + shared) * (1.0 + 1e-6)
    assert [at_more.plan.keeps[at] == 0.0 for at in ("ou->os", "ou->ot")] == [
        found.plan.keeps[at] == 0.0 for at in ("ou->os", "ou->ot")
    ]


def test_branches_take_no_more_than_was_planned_and_nearly_all_that_can_be_earned() -> None:
    rng = np.random.default_rng(18)
    shares, gains = [], []
    for _ in range(CASES // 3):
        names = [f"u{i}" for i in range(rng.integers(1, 3))]
        branches = {
            name: {
                f"{name}b{i}": WindowedStream(
                    rate=1.0,
                    cost=float(rng.choice([1.0, 2.0, rng.uniform(0.5, 2.0)])),
                    weight=float(rng.choice([1.0, 2.0, rng.uniform(0.5, 2.0)])),
                    shape=[None, windows(10, 10), windows(10, 5), windows(20, 5)][rng.integers(4)],
                )
                for i in range(rng.integers(2, 4))
            }
            for name in names
        }
        network = splits({name: float(rng.choice([0.0, 0.1, 1.0])) for name in names}, branches)
        rates = {name: float(rng.uniform(0.5, 2.0)) for name in names}
        cpu = float(rng.uniform(0.3, 0.9)) * flows(network, rates).load["A"]
        network = with_cpu(network, cpu)
        planner, shapes = make_planner(network), shapes_of(network)
        plan = planner.plan(rates)
        found = WindowChooser(network, shapes).choose(planner.plan, rates)
        assert flows(network, rates, found.plan.keeps).load["A"] <= cpu * (1.0 + 1e-6)
        shares.append(found.worth / most_earned_at(network, plan, shapes))
        gains.append(found.worth / windowed_plan(network, plan, shapes).score)
        assert shares[-1] >= 0.8 and gains[-1] >= 1.0 - 1e-9, (network, rates)
    assert np.mean(shares) > 0.97 and np.mean(gains) > 1.05
