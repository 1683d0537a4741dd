"""The query networks of the Borealis papers' experiments, built from their costs.

Only (64, 32) of Figure 9 is printed; the other four pairs are a choice that keeps both servers' total cost at 96 ms.
The bound of the rate space is not printed either: 100 tuples/s a stream, four to nine times what is feasible.
"""

from __future__ import annotations

from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream

SOURCE = "staying-fit"
FIGURE_9 = ((48, 48), (64, 32), (72, 24), (80, 16), (88, 8))
"""Costs in ms of the two chains on the first server, reversed on the second; imbalance grows from left to right."""
MAX_RATE = 100.0


def figure1() -> Network:
    """Figure 1 of both papers with selectivity 1 everywhere: costs 1, 2 on A and 3, 1 on B."""
    return _chains([(1.0, 3.0), (2.0, 1.0)], max_rate=2.0, name="figure1")


def figure9(first_ms: float, second_ms: float, max_rate: float = MAX_RATE) -> Network:
    """Two chains over two servers."""
    first, second = first_ms / 1000, second_ms / 1000
    return _chains([(first, second), (second, first)], max_rate, f"figure9-{first_ms:g}-{second_ms:g}")


def many_inputs(inputs: int, max_rate: float) -> Network:
    """Figure 9(b) with more inputs and proportionally cheaper queries: (32, 16, 32, 16), (16, 8, …)."""
    dear, cheap = 0.128 / inputs, 0.064 / inputs
    return _chains([(dear, cheap), (cheap, dear)] * (inputs // 2), max_rate, f"inputs-{inputs}")


def fan_out(branches: int) -> Network:
    """One input, one shared operator, `branches` queries of different costs on one server (section 8.2.3)."""
    operators = {"shared": Operator("shared", "A", ("s",), OperatorKind.DELAY, cost=0.25 / branches)}
    for i in range(branches):
        cost = (1 + i) / (2 * branches)
        operators[f"b{i}"] = Operator(f"b{i}", "A", ("shared",), OperatorKind.DELAY, cost=cost)
    outputs = {f"q{i}": Output(f"q{i}", f"b{i}") for i in range(branches)}
    return Network(f"fan-out-{branches}", {"s": Stream("s", 10.0)}, {"A": Node("A")}, operators, outputs)


def _chains(costs: list[tuple[float, float]], max_rate: float, name: str) -> Network:
    """A chain a pair: the first cost on server A, the second on server B."""
    operators: dict[str, Operator] = {}
    for i, (on_a, on_b) in enumerate(costs, 1):
        operators[f"a{i}"] = Operator(f"a{i}", "A", (f"s{i}",), OperatorKind.DELAY, cost=on_a)
        operators[f"b{i}"] = Operator(f"b{i}", "B", (f"a{i}",), OperatorKind.DELAY, cost=on_b)
    numbers = range(1, len(costs) + 1)
    return Network(
        name,
        {f"s{i}": Stream(f"s{i}", max_rate) for i in numbers},
        {"A": Node("A"), "B": Node("B")},
        operators,
        {f"q{i}": Output(f"q{i}", f"b{i}") for i in numbers},
    )
