"""Contracts and the book of payments: what is refused, what is owed."""

from __future__ import annotations

import pytest

from floodway.contracts.contract import Contract, Service, as_giver, as_taker, with_partner
from floodway.contracts.load import Load, Task
from floodway.contracts.messages import Move
from floodway.contracts.payment import Payment, PaymentReason, payment, penalty
from floodway.errors import ContractError
from tests.contracts.made import bilateral, fixed_price

TASK = Task("t", Load(0.1, 0.1), units=2.0, kind="filter")
MOVE = Move("A/0", "A", "B", 0.25, (TASK, Task("u", Load(0.1, 0.1))))


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.1, 0.2, "negative"),
        (0.3, 0.2, "upside down"),
        (float("nan"), 0.2, "finite"),
        (0.1, float("inf"), "finite"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(low: float, high: float, says: str) -> None:
    with pytest.raises(ContractError, match=says) as refused:
        Contract("A", "B", low, high)
    assert "A->B" in refused.value.message
    assert refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("giver", "taker"), [("A", "A"), ("", "B"), ("A", "")])
def test_a_contract_has_two_sides(giver: str, taker: str) -> None:
    with pytest.raises(ContractError, match="two different"):
        fixed_price(giver, taker, 0.1)


def test_one_contract_a_pair_and_direction() -> None:
    both = bilateral("A", "B", 0.1, 0.2)
    assert set(as_giver("A", both)) == {"B"} == set(as_taker("A", both))
    with pytest.raises(ContractError, match="two contracts A->B"):
        as_giver("A", [*both, fixed_price("A", "B", 0.3)])


def test_unknown_partners_are_named_with_the_nearest() -> None:
    found = as_giver("A", [fixed_price("A", "utah", 0.1)])
    with pytest.raises(ContractError, match="Did you mean utah"):
        with_partner(found, "utha", me="A")
    with pytest.raises(ContractError, match="None is defined"):
        with_partner({}, "utah", me="A")


def test_prices_and_tasks_outside_the_contract_are_refused() -> None:
    contract = Contract("A", "B", 0.1, 0.2, kinds=frozenset({"filter", "map"}))
    contract.check(0.2, [TASK])
    with pytest.raises(ContractError, match="outside"):
        contract.check(0.21, [TASK])
    with pytest.raises(ContractError, match="may not move") as refused:
        contract.check(0.15, [Task("s", Load(), kind="secret")])
    assert "filter, map" in str(refused.value)


def test_payments_are_price_times_units_times_seconds() -> None:
    entry = payment(MOVE, start=10.0, end=14.0)
    assert entry.amount == pytest.approx(0.25 * 3.0 * 4.0)
    assert (entry.payer, entry.payee, entry.reason) == ("A", "B", PaymentReason.LOAD)


def test_a_penalty_is_owed_only_when_service_is_missed() -> None:
    contract = Contract("A", "B", 0.1, 0.3, service=Service(max_delay_seconds=0.5, penalty=2.0))
    assert penalty(contract, MOVE, delay_seconds=0.5, start=0.0, end=10.0) is None
    assert penalty(fixed_price("A", "B", 0.25), MOVE, delay_seconds=9.0, start=0.0, end=10.0) is None
    owed = penalty(contract, MOVE, delay_seconds=0.6, start=0.0, end=10.0)
    assert owed is not None
    assert (owed.payer, owed.payee) == ("B", "A")
    assert owed.amount == pytest.approx(2.0 * 3.0 * 10.0)


def test_bad_entries_and_services_are_refused() -> None:
    with pytest.raises(ContractError, match="0 or more"):
        Payment("x", "A", "B", -1.0, PaymentReason.LOAD, 0.0)
    with pytest.raises(ContractError, match="by itself"):
        Payment("x", "A", "A", 1.0, PaymentReason.LOAD, 0.0)
    with pytest.raises(ContractError, match="before it starts"):
        payment(MOVE, start=2.0, end=1.0)
    with pytest.raises(ContractError, match="before it starts"):
        penalty(fixed_price("A", "B", 0.1), MOVE, delay_seconds=1.0, start=2.0, end=1.0)
    with pytest.raises(ContractError, match="delay"):
        Service(max_delay_seconds=0.0, penalty=1.0)
    with pytest.raises(ContractError, match="penalty"):
        Service(max_delay_seconds=1.0, penalty=-1.0)
