"""Lemmas 1, 3 and 4: the price range a chain needs, and how many rounds and messages a federation takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from floodway.contracts.cost import InFlight
from floodway.contracts.pricing import PAPER_TASK, chain_range
from floodway.experiments.contracts import common
from floodway.experiments.result import Claim, Progress, Result
from floodway.simulation.federation_cases import PAPER_LEVEL, Variant, prices, uniform_prices
from floodway.simulation.federation_market import Market, Outcome, converge
from floodway.simulation.federation_topology import chain, from_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Chains, rounds and messages"
CLAIM = Claim(
    common.SOURCE,
    "Lemmas 1, 3, 4",
    "a chain of M+1 nodes needs a price range of at least δ_{M-1}; settling takes O(1) rounds and O(N) messages "
    "at best, O(NC) messages at worst with notifications",
)
LONGEST = 8
PAIRS = (10, 100, 1000)
SIZES = (125, 250, 500, 1000)
OVERLOAD_CONTRACTS = 5


def travels(transfers: int, range_transfers: int) -> bool:
    """Whether the head of a chain can shed its one excess task, which must go all the way to an empty last node.

    The j-th node in between has one task less than the one before it, so that each can take a task only after giving
    one. Prices cover what a chain of `range_transfers` needs.
    """
    low, high = chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, range_transfers)
    tasks = PAPER_LEVEL + 1 - np.arange(transfers + 1)
    tasks[-1] = 0
    topology = chain(transfers + 1)
    outcome = converge(Market(topology, uniform_prices(topology, low, high), tasks))
    return bool((outcome.tasks <= PAPER_LEVEL).all())


def best_case(pairs: int) -> Outcome:
    """Each overloaded node has one empty partner: every move is one offer, one answer, one transfer."""
    topology = from_pairs(2 * pairs, [(2 * one, 2 * one + 1) for one in range(pairs)])
    tasks = np.tile(np.array([PAPER_LEVEL + 6, 0], dtype=np.int64), pairs)
    low, high = chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, 1)
    return converge(Market(topology, uniform_prices(topology, low, high), tasks))


def overloaded(nodes: int, seed: int, *, notifications: bool) -> tuple[Outcome, int]:
    """An overloaded network at fixed prices, and its number of directed contracts."""
    case = common.Case(seed, Variant.FIXED, OVERLOAD_CONTRACTS, overload=True, nodes=nodes)
    table = prices(case.topology, Variant.FIXED, np.random.default_rng(seed))
    outcome = converge(Market(case.topology, table, case.start, notifications=notifications))
    return outcome, int(case.topology.degrees.sum())


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Chains of up to 8 transfers need exactly δ_{M-1}; 3 messages a move at best; messages a contract stay level."""
    needed = {
        count: travels(count, count) and (count == 1 or not travels(count, count - 1))
        for count in range(1, LONGEST + 1)
    }
    progress(0.3)
    best = {pairs: best_case(pairs) for pairs in PAIRS}
    progress(0.5)
    per_contract: dict[int, float] = {}
    for place, size in enumerate(SIZES):
        found = [overloaded(size, seed, notifications=True) for seed in seeds[: common.RUNS]]
        per_contract[size] = common.mean([outcome.messages / contracts for outcome, contracts in found])
        progress(0.5 + 0.5 * (place + 1) / len(SIZES))
    three_each = all(one.messages == 3 * pairs and len(one.rounds) == 2 for pairs, one in best.items())
    level = all(after <= 1.25 * before for before, after in pairwise(per_contract.values()))
    return Result(
        id="contracts-lemmas",
        title=TITLE,
        paper=CLAIM,
        measured={
            "chain_needs_delta": {str(count): fine for count, fine in needed.items()},
            "best_case_messages": {str(pairs): one.messages for pairs, one in best.items()},
            "best_case_rounds": {str(pairs): len(one.rounds) - 1 for pairs, one in best.items()},
            "overload_messages_per_contract": {str(size): value for size, value in per_contract.items()},
        },
        holds=all(needed.values()) and three_each and level,
        where="simulation",
        notes=(common.SEEDS_NOTE, "Messages: offers, answers, moves and notes of room."),
        headline=f"δ_(M-1) needed and enough for M = 1..{LONGEST}: {all(needed.values())}; "
        f"best case {best[PAIRS[-1]].messages / best[PAIRS[-1]].transfers:g} messages a move; "
        f"overload: {per_contract[SIZES[0]]:.2f} messages a contract at {SIZES[0]} nodes, "
        f"{per_contract[SIZES[-1]]:.2f} at {SIZES[-1]}",
        plots={"contracts-lemmas": lambda: _draw(per_contract, seeds[: common.RUNS])},
    )


def _draw(per_contract: dict[int, float], seeds: Sequence[int]) -> Figure:
    from floodway.experiments.plots import lines, panels, style

    figure, (left, right) = panels(1, 2, width=9.6)
    widths = [chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, count) for count in range(1, LONGEST + 1)]
    lines(left, range(1, LONGEST + 1), {"δ_(M-1)": [high - low for low, high in widths]}, marker="o")
    without = [
        common.mean(
            [
                found.messages / contracts
                for found, contracts in (overloaded(size, seed, notifications=False) for seed in seeds)
            ]
        )
        for size in SIZES
    ]
    lines(right, SIZES, {"with notifications": list(per_contract.values()), "trying again": without}, marker="o")
    right.set_ylim(bottom=0)
    style(left, title="(a) Price range a chain needs", x="transfers M", y="price range")
    style(right, title="(b) Messages in an overloaded network", x="nodes", y="messages a contract", legend=True)
    figure.suptitle("Lemmas 1 and 4", fontsize=11)
    return figure
