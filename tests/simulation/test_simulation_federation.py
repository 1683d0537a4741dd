"""Federations: the vectorised market against the state machines, the paper's lemmas, contract networks."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from floodway.contracts.contract import Contract
from floodway.contracts.cost import PAPER_TASK, InFlight, chain_range, unit_price
from floodway.contracts.messages import Move
from floodway.contracts.participant_state import NegotiationTimes, participant
from floodway.errors import InputError
from floodway.experiments.contracts.common import FederationCase
from floodway.experiments.contracts.lemmas import best_case, overloaded, travels
from floodway.experiments.contracts.scale import settle
from floodway.simulation.federation import SimulatedFederation, of_topology
from floodway.simulation.federation_cases import (
    Variant,
    allocation,
    chain,
    from_pairs,
    prices,
    random_contracts,
    uniform_prices,
)
from floodway.simulation.federation_market import Market, capacity, converge, excess, room
from tests.contracts.made import fixed_price
from tests.simulation.rounds import rounds_to_rest

COSTS = InFlight()


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("notifications", [True, False])
def test_the_market_does_what_the_state_machines_do(variant: Variant, notifications: bool) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(2, 20))
        topology = random_contracts(nodes, int(rng.integers(1, min(nodes, 5))), rng)
        table, start = prices(topology, variant, rng), rng.integers(0, 24, nodes)
        migration_cost = float(rng.choice([0.0, 0.01]))
        market = Market(topology, table, start, notifications=notifications, migration_cost=migration_cost)
        settings = NegotiationTimes(wake_seconds=inf, notifications=notifications, migration_cost=migration_cost)
        federation = of_topology(topology, table, start, settings=settings)
        moving = True
        while moving:
            said = federation.messages
            done, moves = market.round(), federation.round()
            moving = done.transfers > 0
            where = f"seed {seed} at {federation.now} s"
            assert list(federation.tasks().values()) == market.tasks.tolist(), where
            assert (moves, federation.messages - said) == (done.transfers, done.messages), where
            assert federation.cost() == pytest.approx(market.cost())


@pytest.mark.parametrize("transfers", range(1, 9))
def test_a_chain_needs_the_price_range_of_lemma_1(transfers: int) -> None:
    assert travels(transfers, transfers)
    if transfers > 1:
        assert not travels(transfers, transfers - 1)


def test_state_machines_pass_a_task_along_a_chain() -> None:
    low, high = chain_range(COSTS, PAPER_TASK, 14, 3)
    topology = chain(4)
    federation = of_topology(topology, uniform_prices(topology, low, high), np.array([15, 14, 13, 0]))
    rounds_to_rest(federation)
    assert max(federation.tasks().values()) == 14
    fixed = of_topology(topology, uniform_prices(topology, high, high), np.array([15, 14, 13, 0]))
    rounds_to_rest(fixed)
    assert fixed.tasks()["n0"] == 15


def test_the_best_case_takes_one_round_and_three_messages_a_move() -> None:
    for pairs in (1, 7, 50):
        outcome = best_case(pairs)
        assert outcome.rounds[0].transfers == pairs
        assert outcome.rounds[1].transfers == 0
        assert outcome.messages == 3 * pairs


def test_with_notifications_messages_stay_proportional_to_the_contracts() -> None:
    for nodes in (60, 120, 240):
        told, contracts = overloaded(nodes, 5, notifications=True)
        again, _ = overloaded(nodes, 5, notifications=False)
        assert told.messages <= 2 * contracts
        assert told.messages < again.messages


def test_a_worst_case_chain_settles_in_rounds_proportional_to_its_length() -> None:
    # Falling prices: each node can take its neighbour's excess only after it has shed its own.
    length = 8
    names = [f"n{place}" for place in range(length)]
    price = [unit_price(COSTS, PAPER_TASK, 20 - place) for place in range(length - 1)]
    contracts = [fixed_price(names[place], names[place + 1], price[place]) for place in range(length - 1)]
    counts = [20 - place + 1 for place in range(length - 1)] + [0]
    federation = SimulatedFederation.of(
        participant(
            name,
            COSTS,
            contracts,
            [replace(PAPER_TASK, name=f"{name}.{k}") for k in range(count)],
            NegotiationTimes(wake_seconds=inf),
        )
        for name, count in zip(names, counts, strict=True)
    )
    rounds = rounds_to_rest(federation)
    assert rounds <= 2 * (length + 2), "O(N + C), with C = 2"
    assert federation.messages <= 8 * length * 2
    assert sum(federation.tasks().values()) == sum(counts)
    assert all(federation.tasks()[names[place]] <= 20 - place for place in range(length - 1))


def test_table_2_starts_with_the_printed_numbers() -> None:
    rng = np.random.default_rng(3)
    for mean, average in ((7.7, 12), (12.0, 15)):
        start = allocation(995, mean, rng)
        assert round(float(start.mean())) == average
        assert (start == 22).sum() >= 299
        assert start.sum() == 299 * 22 + round(mean * 696)


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("overload", [False, True])
def test_995_nodes_come_to_rest(variant: Variant, overload: bool) -> None:
    case = FederationCase(1, variant, 10, overload)
    outcome, limit = case.run()
    assert outcome.converged and outcome.rounds[-1].transfers == 0 and len(outcome.rounds) < 100
    assert outcome.tasks.sum() == case.start.sum(), "load is moved, not made or lost"
    assert excess(outcome.tasks, limit) < 0.5 * excess(case.start, limit)
    assert room(outcome.tasks, limit) < room(case.start, limit)


@pytest.mark.slow
@pytest.mark.timing
def test_995_nodes_settle_in_two_seconds_and_a_hundred_thousand_in_sixty() -> None:
    for variant in Variant:
        for seed in range(1, 10):
            for overload in (False, True):
                found = settle(FederationCase(seed, variant, 10, overload))
                assert found["settled"] and found["cpu_seconds"] < 2.0, (variant, seed, overload, found)
        found = settle(FederationCase(1, variant, 10, nodes=100_000))
        assert found["settled"] and found["cpu_seconds"] < 60.0, (variant, found)


def test_prices_of_table_2() -> None:
    rng = np.random.default_rng(1)
    topology = random_contracts(60, 3, rng)
    here = topology.partners >= 0
    price = [unit_price(COSTS, PAPER_TASK, count) for count in range(1, 20)]
    fixed, ranged = prices(topology, Variant.FIXED, rng), prices(topology, Variant.RANGE, rng)
    assert set(fixed.low[here]) == set(fixed.high[here]) == {price[13]}
    assert (set(ranged.low[here]), set(ranged.high[here])) == ({price[11]}, {price[13]})
    random = prices(topology, Variant.RANDOM_RANGE, rng)
    rows, columns = np.nonzero(here)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        level = min(random.levels[row], random.levels[topology.partners[row, column]])
        assert random.high[row, column] == price[level - 1]
        assert random.low[row, column] == price[level - 3]
    assert random.levels.min() >= 12
    assert random.levels.max() <= 18


def test_random_contracts_are_connected_both_ways_and_enough() -> None:
    for nodes, least in ((2, 1), (5, 4), (200, 1), (200, 6)):
        topology = random_contracts(nodes, least, np.random.default_rng(nodes))
        assert topology.degrees.min() >= least
        assert topology.eccentricities().max() < nodes
        for node, row in enumerate(topology.partners.tolist()):
            partners = [other for other in row if other >= 0]
            assert len(partners) == len(set(partners))
            assert node not in partners
            for column, other in enumerate(row):
                if other >= 0:
                    assert topology.partners[other, topology.back[node, column]] == node


def test_eccentricities_of_a_chain_and_of_a_broken_network() -> None:
    assert chain(5).eccentricities().tolist() == [4, 3, 2, 3, 4]
    with pytest.raises(InputError, match="without a path"):
        from_pairs(4, [(0, 1), (2, 3)]).eccentricities()


def test_excess_and_room_at_rest() -> None:
    topology = chain(2)
    high = unit_price(COSTS, PAPER_TASK, 14)
    market = Market(topology, uniform_prices(topology, high, high), np.array([20, 10]))
    assert capacity(market).tolist() == [14, 14]
    outcome = converge(market)
    assert outcome.tasks.tolist() == [16, 14]
    assert (excess(outcome.tasks, capacity(market)), room(outcome.tasks, capacity(market))) == (2, 0)
    market.add(1, 80)
    assert converge(market).tasks.tolist() == [16, 94]
    assert market.cost() < inf


def test_tasks_start_and_end_wherever_they_are() -> None:
    seen: list[Move] = []
    federation = of_topology(chain(2), uniform_prices(chain(2), 0.2464, 0.2464), np.array([10, 10]))
    federation.watch = lambda _, move: seen.append(move)
    for place in range(8):
        federation.start("n0", replace(PAPER_TASK, name=f"extra{place}"))
    rounds_to_rest(federation)
    assert sum(len(move.tasks) for move in seen) == 18 - federation.tasks()["n0"] > 0
    for place in range(8):
        federation.end(f"extra{place}")
    assert sum(federation.tasks().values()) == 20
    with pytest.raises(InputError, match="no participant runs"):
        federation.end("extra0")


def test_bad_federations_are_refused() -> None:
    contract = Contract("A", "B", 0.1, 0.2)
    a = participant("A", COSTS, [contract], [PAPER_TASK])
    with pytest.raises(InputError, match="unknown B"):
        SimulatedFederation.of([a])
    with pytest.raises(InputError, match="two participants"):
        SimulatedFederation.of([a, a])
    with pytest.raises(InputError, match="both run"):
        SimulatedFederation.of([a, participant("B", COSTS, [contract], [PAPER_TASK])])
    with pytest.raises(InputError, match="cannot have"):
        random_contracts(3, 3, np.random.default_rng(1))
    with pytest.raises(InputError, match="task counts"):
        Market(chain(3), uniform_prices(chain(3), 0.1, 0.2), np.array([1, -1, 2]))
    with pytest.raises(InputError, match="makes no sense"):
        uniform_prices(chain(3), 0.3, 0.2)
