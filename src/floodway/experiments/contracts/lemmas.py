"""Lemmas 1, 3, 4 and Theorem 2: the price range a chain needs, what it ensures, and how many rounds and messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from floodway.contracts.cost import PAPER_TASK, InFlight, chain_range
from floodway.experiments.contracts import common
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.federation_cases import (
    PAPER_LEVEL,
    Ints,
    Topology,
    Variant,
    chain,
    from_pairs,
    prices,
    random_contracts,
    uniform_prices,
)
from floodway.simulation.federation_market import Market, Outcome, converge

TITLE = "Chains, rounds and messages"
CLAIM = Claim(
    common.SOURCE,
    "Lemmas 1, 3, 4, Theorem 2",
    "a chain of M+1 nodes needs a price range of at least δ_{M-1}; with it the final allocation is acceptable in "
    "underloaded and nearly acceptable in overloaded systems; settling takes O(1) rounds and O(N) messages at best, "
    "O(NC) messages at worst with notifications",
)
LONGEST = 8
PAIRS = (10, 100, 1000)
SIZES = (125, 250, 500, 1000)
OVERLOAD_CONTRACTS = 5
COUNTEREXAMPLE = (15, 14, 13)
"""A chain with room for every task, 14 a node, from which Lemma 1's range moves nothing."""
NETWORKS = 20
"""Random networks of Theorem 2 for each seed, each underloaded and overloaded."""


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


def final(topology: Topology, tasks: Ints) -> Ints:
    """Tasks at rest with the range that Lemma 1 asks for, by the network's diameter."""
    hops = min(int(topology.eccentricities().max()), PAPER_LEVEL - 1)
    low, high = chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, hops)
    return converge(Market(topology, uniform_prices(topology, low, high), tasks)).tasks


def theorem_2(seed: int, *, overload: bool) -> list[bool]:
    """Whether the final allocation of random networks of 5 to 29 nodes is acceptable, or nearly so if overloaded."""
    rng = np.random.default_rng([seed, 104, overload])
    found = []
    for _ in range(NETWORKS):
        nodes = int(rng.integers(5, 30))
        topology = random_contracts(nodes, int(rng.integers(1, 4)), rng)
        load = rng.uniform(1.05, 1.4) if overload else rng.uniform(0.6, 0.99)
        tasks = np.bincount(rng.integers(0, nodes, size=round(load * PAPER_LEVEL * nodes)), minlength=nodes)
        end = final(topology, tasks)
        diameter = int(topology.eccentricities().max())
        found.append(bool((end >= PAPER_LEVEL - diameter).all() if overload else (end <= PAPER_LEVEL).all()))
    return found


def best_case(pairs: int) -> Outcome:
    """Each overloaded node has one empty partner: every move is one offer, one answer, one transfer."""
    topology = from_pairs(2 * pairs, [(2 * one, 2 * one + 1) for one in range(pairs)])
    tasks = np.tile(np.array([PAPER_LEVEL + 6, 0], dtype=np.int64), pairs)
    low, high = chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, 1)
    return converge(Market(topology, uniform_prices(topology, low, high), tasks))


def overloaded(nodes: int, seed: int, *, notifications: bool) -> tuple[Outcome, int]:
    """An overloaded network at fixed prices, and its number of directed contracts."""
    case = common.FederationCase(seed, Variant.FIXED, OVERLOAD_CONTRACTS, overload=True, nodes=nodes)
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
    trying_again: dict[int, float] = {}
    for place, size in enumerate(SIZES):
        per_contract[size] = _messages(size, seeds, notifications=True)
        trying_again[size] = _messages(size, seeds, notifications=False)
        progress(0.5 + 0.5 * (place + 1) / len(SIZES))
    counterexample = final(chain(len(COUNTEREXAMPLE)), np.array(COUNTEREXAMPLE)).tolist()
    under, over = ([ok for seed in seeds for ok in theorem_2(seed, overload=kind)] for kind in (False, True))
    three_each = all(one.messages == 3 * pairs for pairs, one in best.items())
    level = all(after <= 1.25 * before for before, after in pairwise(per_contract.values()))
    return Result(
        measured={
            "chain_needs_delta": {str(count): fine for count, fine in needed.items()},
            "counterexample": {"start": list(COUNTEREXAMPLE), "end": counterexample, "room": PAPER_LEVEL},
            "theorem_2": {
                "networks": len(under),
                "underload, acceptable": round(sum(under) / len(under), 4),
                "overload, nearly acceptable": round(sum(over) / len(over), 4),
            },
            "best_case_messages": {str(pairs): one.messages for pairs, one in best.items()},
            "best_case_rounds": {str(pairs): len(one.rounds) - 1 for pairs, one in best.items()},
            "overload_messages_per_contract": {str(size): value for size, value in per_contract.items()},
            "the same without notifications": {str(size): value for size, value in trying_again.items()},
        },
        criteria=(
            Criterion(
                f"Lemma 1: δ_(M-1) is needed, and moves a task to an empty end, for M = 1 to {LONGEST}",
                all(needed.values()),
                str(needed),
            ),
            Criterion(
                "Theorem 2: with Lemma 1's range an underloaded network ends in an acceptable allocation",
                all(under) and max(counterexample) <= PAPER_LEVEL,
                f"{under.count(False)} of {len(under)} random networks do not; the chain "
                f"{list(COUNTEREXAMPLE)} ends as {counterexample}, with room for {PAPER_LEVEL} each",
            ),
            Criterion(
                "Theorem 2: an overloaded network ends in a nearly acceptable one, M tasks below capacity at most",
                all(over),
                f"{over.count(False)} of {len(over)} do not",
            ),
            Criterion(
                "Lemma 3: at best one round settles, however many nodes there are",
                all(len(one.rounds) == 2 for one in best.values()),
            ),
            Criterion("Lemma 4: at best a move takes three messages", three_each),
            Criterion(
                "Lemma 4: messages per contract stay level with the network's size when overloaded",
                level,
                str(per_contract),
            ),
            Criterion(
                "Lemma 4: notifications take fewer messages than trying again in every round",
                all(per_contract[size] < trying_again[size] for size in SIZES),
                f"{list(per_contract.values())} and {list(trying_again.values())} per contract",
            ),
        ),
        why="In the chain the node in the middle would have to sell its 14th task below what it saves, and the last "
        "would have to buy a 14th below what that costs. Both are the contract's highest price, so no range moves it. "
        "Lemma 1 says how wide a range must at least be; near capacity no width is enough",
        where="simulation",
        notes=("Messages: offers, answers, moves and notes of room.",),
        headline=f"δ_(M-1) needed and enough for M = 1..{LONGEST}: {all(needed.values())}; "
        f"best case {best[PAIRS[-1]].messages / max(best[PAIRS[-1]].transfers, 1):g} messages a move; "
        f"overload: {per_contract[SIZES[0]]:.2f} messages a contract at {SIZES[0]} nodes, "
        f"{per_contract[SIZES[-1]]:.2f} at {SIZES[-1]}",
        plots={"contracts-lemmas": lambda: _draw(per_contract, trying_again)},
    )


def _messages(size: int, seeds: Sequence[int], *, notifications: bool) -> float:
    """Messages per contract until an overloaded network comes to rest, mean over seeds."""
    found = [overloaded(size, seed, notifications=notifications) for seed in seeds]
    return common.mean([outcome.messages / contracts for outcome, contracts in found])


def _draw(per_contract: dict[int, float], trying_again: dict[int, float]) -> Figure:
    figure, (left, right) = panels(1, 2, width=9.6)
    widths = [chain_range(InFlight(), PAPER_TASK, PAPER_LEVEL, count) for count in range(1, LONGEST + 1)]
    lines(left, range(1, LONGEST + 1), {"δ_(M-1)": [high - low for low, high in widths]}, marker="o")
    lines(
        right,
        SIZES,
        {"with notifications": list(per_contract.values()), "trying again": list(trying_again.values())},
        marker="o",
    )
    right.set_ylim(bottom=0)
    style(left, title="(a) Price range a chain needs", x="transfers M", y="price range")
    style(right, title="(b) Messages in an overloaded network", x="nodes", y="messages a contract", legend=True)
    figure.suptitle("Lemmas 1 and 4", fontsize=11)
    return figure
