"""What an operator got is what the one before it passed on: every batch, also those that Spark has long forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodway.job.ledger.audit_point import Findings
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.model import Network, Node, Operator, OperatorKind, Output, Stream
from floodway.spark.audit.flow_bounds import check_flow
from floodway.spark.query.fragments import fragments

HALF = Operator("left", "A", ("work",), selectivity=0.5)
NETWORK = Network(
    "n",
    {"s": Stream("s")},
    {"A": Node("A")},
    {"work": Operator("work", "A", ("s",)), "left": HALF, "right": Operator("right", "A", ("work",))},
    {"q": Output("q", "left"), "r": Output("r", "right")},
)


def line(at: str, offered: int, kept: int, reason: Reason = Reason.SHEDDER, keep_ppm: int = 400_000) -> LedgerLine:
    return LedgerLine("A.main", 7, at, reason, offered, kept, offered - kept, keep_ppm=keep_ppm)


def sunk(at: str, count: int) -> LedgerLine:
    return line(at, count, count, Reason.DELIVERED)


TRUE = [
    line("s", 100, 60),
    line("work->left", 60, 30),
    line("work->right", 60, 24),
    sunk("q", 13),
    sunk("r", 24),
]


def flow(lines: list[LedgerLine], network: Network = NETWORK) -> Findings:
    found = Findings()
    (fragment,) = fragments(network, "A")
    check_flow(network, fragment, lines, found)
    return found


def test_a_true_batch_flows() -> None:
    assert flow(TRUE) == Findings()


@pytest.mark.parametrize(
    ("index", "lie", "told"),
    [
        (1, line("work->left", 61, 30), "branch work->left was offered 61 tuples, work emitted 60"),
        (2, line("work->right", 59, 24), "branch work->right was offered 59 tuples, work emitted 60"),
        (2, line("work->right", 60, 25), "24 tuples were delivered to r, 25 came so far"),
        (2, line("work->right", 60, 24, keep_ppm=1_000_000), "kept 24 of 60 at 1000000 ppm"),
        (3, sunk("q", 31), "31 tuples were delivered to q, 0 to 30 came so far"),
        (4, sunk("r", 23), "23 tuples were delivered to r, 24 came so far"),
        (0, line("s", 100, 61), "was offered 60 tuples, work emitted 61"),
    ],
)
def test_every_untruth_is_found(index: int, lie: LedgerLine, told: str) -> None:
    lines = [*TRUE[:index], lie, *TRUE[index + 1 :]]
    assert any(told in text for text in flow(lines).differences)


def test_behind_a_users_function_branches_are_held_against_each_other_only() -> None:
    operators = {**NETWORK.operators, "work": Operator("work", "A", ("s",), run="x:y")}
    network = replace(NETWORK, operators=operators)
    found = flow(TRUE, network)
    assert found.differences == [] and [text[:11] for text in found.unchecked] == ["work->left:", "work->right"]
    other = [TRUE[0], TRUE[1], line("work->right", 50, 24), *TRUE[3:]]
    assert any(
        "work->right was offered 50 tuples, work emitted 60" in text for text in flow(other, network).differences
    )


def test_a_windows_results_are_its_own_affair() -> None:
    window = Operator("work", "A", ("s",), OperatorKind.AGGREGATE, window=1.0)
    assert flow(TRUE, replace(NETWORK, operators={**NETWORK.operators, "work": window})).differences == []
