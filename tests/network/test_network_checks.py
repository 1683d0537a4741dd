"""Checks of what is given for a network: rates, keeps, known costs; and the example files themselves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from floodway.errors import NetworkError, did_you_mean, nearest
from floodway.network.file import load_network, network_to_json, network_to_yaml, parse_network
from floodway.network.file_checks import check_keeps, check_rates, require_costs
from floodway.network.flow import flows, max_feasible_rates
from floodway.network.model import Arc, Network, Node, Operator, Output, Stream

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"
FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.fixture
def figure1() -> Network:
    return load_network(EXAMPLES / "figure1.yaml")


def test_good_rates_and_keeps_pass(figure1: Network) -> None:
    check_rates(figure1, {"s1": 0.0, "s2": 5.5})
    check_keeps(figure1, {"s1": 0.0, "a1->b1": 1.0, "b1->q1": 0.5})


def test_wrong_rates_are_all_named(figure1: Network) -> None:
    with pytest.raises(NetworkError) as caught:
        check_rates(figure1, {"S1": 1.0, "s2": math.nan})
    found = {problem.key: problem.message for problem in caught.value.problems}
    assert "did you mean s1?" in found["rates.S1"]
    assert "finite, not nan" in found["rates.s2"]
    assert "no rate for s1" in found["rates"]
    for rate in (-1.0, math.inf):
        with pytest.raises(NetworkError, match=r"rates\.s1"):
            check_rates(figure1, {"s1": rate, "s2": 1.0})


def test_missing_rates_are_listed(figure1: Network) -> None:
    with pytest.raises(NetworkError, match=r"no rate for s1, s2; .* s1=1,s2=1"):
        check_rates(figure1, {})


@pytest.mark.parametrize(("place", "keep"), [("s1", 1.1), ("s1", -0.1), ("s1", math.nan), ("a1->b2", 0.5)])
def test_wrong_keeps(figure1: Network, place: str, keep: float) -> None:
    with pytest.raises(NetworkError) as caught:
        check_keeps(figure1, {place: keep})
    (problem,) = caught.value.problems
    assert problem.key == f"keeps.{place}"
    assert ("from 0 to 1" in problem.message) == (place == "s1")
    assert ("did you mean a2->b2?" in problem.message) == (place == "a1->b2")


def test_costs_to_be_measured_are_all_named() -> None:
    text = """
    version: 1
    streams: {s: {}}
    nodes: {A: {}}
    operators:
      x: {node: A, from: s}
      y: {node: A, from: x, cost: 1, selectivity: measure}
      z: {node: A, from: y, cost: 1}
    outputs: {q: {from: z}}
    """
    with pytest.raises(NetworkError) as caught:
        require_costs(parse_network(text))
    assert [problem.key for problem in caught.value.problems] == [
        "operators.x.cost",
        "operators.y.selectivity",
    ]
    assert all("floodway measure" in problem.message for problem in caught.value.problems)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_example_files_are_valid_named_after_themselves_and_written_back_equal(path: Path) -> None:
    network = load_network(path)
    assert network.name == path.stem
    if path.stem != "json-clicks":  # whose costs `floodway measure` is to find
        require_costs(network)
    assert parse_network(network_to_yaml(network)) == network
    assert parse_network(network_to_json(network)) == network
    assert all(stream.max_rate is not None for stream in network.streams.values())


def test_all_examples_of_the_papers_are_there() -> None:
    pairs = ("48-48", "64-32", "72-24", "80-16", "88-8")
    expected = {
        "figure1",
        "figure1-short",
        "split",
        "two-level-split",
        "merge-union",
        "merge-join",
        "diamond",
    }
    expected |= {"bandwidth-memory", "priorities"} | {f"figure9-{pair}" for pair in pairs}
    assert expected <= {path.stem for path in FILES}


def test_figure_9_costs_are_reversed_on_the_second_server_and_balanced() -> None:
    for path in FILES:
        if path.stem.startswith("figure9"):
            operators = load_network(path).operators
            assert operators["a1"].cost == operators["b2"].cost
            assert operators["a2"].cost == operators["b1"].cost
            assert (operators["a1"].cost or 0) + (operators["a2"].cost or 0) == pytest.approx(0.096)


def test_feasible_rates_of_the_examples() -> None:
    assert max_feasible_rates(load_network(EXAMPLES / "split.yaml")) == pytest.approx({"s": 1 / 8})
    assert max_feasible_rates(load_network(EXAMPLES / "figure1.yaml")) == pytest.approx({"s1": 1 / 3, "s2": 0.5})
    limited = load_network(EXAMPLES / "bandwidth-memory.yaml")
    # sensors: two crossings of 0.8 * 40 bytes against 400; events: 60 bytes each.
    assert max_feasible_rates(limited) == pytest.approx({"sensors": 6.25, "events": 400 / 60})


def test_order_is_topological_by_levels_and_refuses_cycles() -> None:
    streams, nodes = {"s": Stream("s")}, {"A": Node("A")}
    operators = {
        "late": Operator("late", "A", ("early",)),
        "early": Operator("early", "A", ("s",)),
        "other": Operator("other", "A", ("s",)),
    }
    network = Network("n", streams, nodes, operators, {"q": Output("q", "late"), "p": Output("p", "other")})
    assert network.order == ("early", "other", "late")
    assert flows(network, {"s": 2.0}).arc[Arc("early", "late")] == 2.0
    operators["early"] = Operator("early", "A", ("late",))
    with pytest.raises(ValueError, match="cycle"):
        _ = Network("n", streams, nodes, operators, {"q": Output("q", "late")}).order


def test_suggestions() -> None:
    assert nearest("STREAMS", ["streams"]) == ["streams"]
    assert nearest("x" * 1000, ["streams"]) == []
    many = [f"operator{i}" for i in range(5000)]
    assert nearest("operater12", many) == ["operator12"]
    assert did_you_mean("zzz", []) == "none is defined"
    assert did_you_mean("zzz", many).endswith("and 4992 more")


def test_the_file_in_the_documentation_is_valid() -> None:
    text = (EXAMPLES.parents[1] / "docs" / "network-file.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```yaml\n")[1:]]
    assert [parse_network(block).name for block in blocks] == ["motivating-example"]
