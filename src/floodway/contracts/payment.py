"""Who owes whom: payments for load carried and penalties for service missed, without I/O.

The giver pays price × units for every second a moved task runs at the taker; the taker pays the contract's penalty for
every second its delay breaks the promised service, it drops tuples, or it does not run the task at all. Each payment
has an id that follows from the move and the time, so a journal that gets it twice books it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from floodway.contracts.contract import Contract
from floodway.contracts.messages import Move
from floodway.errors import ContractError


class PaymentReason(StrEnum):
    """Why money changes hands."""

    LOAD = "load"
    PENALTY = "penalty"


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment; `amount` is in the unit of cost times seconds."""

    id: str
    payer: str
    payee: str
    amount: float
    reason: PaymentReason
    at: float

    def __post_init__(self) -> None:
        if not (isfinite(self.amount) and self.amount >= 0):
            raise ContractError(f"entry {self.id} is over {self.amount}", hint="Amounts are finite and 0 or more")
        if self.payer == self.payee:
            raise ContractError(f"entry {self.id} pays {self.payer} by itself", hint="Name two participants")


def payment(move: Move, *, start: float, end: float) -> Payment:
    """What the giver of a move owes for the seconds from `start` to `end`."""
    if end < start:
        raise ContractError(f"payment for {move.id} ends before it starts", hint="Give start <= end")
    amount = move.price * move.units * (end - start)
    return Payment(f"{move.id}/load/{start:.3f}", move.giver, move.taker, amount, PaymentReason.LOAD, end)


def penalty(
    contract: Contract, move: Move, *, delay_seconds: float, start: float, end: float, keep: float = 1.0
) -> Payment | None:
    """What the taker of a move owes because its tuples took `delay_seconds`, or only a share `keep` was kept.

    None where service was kept.
    """
    if end < start:
        raise ContractError(f"penalty for {move.id} ends before it starts", hint="Give start <= end")
    service = contract.service
    owed = 0.0 if service is None else service.penalty_for(delay_seconds, move.units, end - start, keep=keep)
    if owed == 0.0:
        return None
    return Payment(f"{move.id}/penalty/{start:.3f}", move.taker, move.giver, owed, PaymentReason.PENALTY, end)


def outage_penalty(contract: Contract, move: Move, *, start: float, end: float) -> Payment | None:
    """What the taker of a move owes because it fell silent from `start` on and the task was taken back at `end`.

    Whatever delay was allowed, tasks that nobody runs are not served. One for each move; None where the contract
    promises no service.

    >>> from floodway.contracts.contract import Service
    >>> from floodway.contracts.load import Load, Task
    >>> contract = Contract("A", "B", 4.0, 4.0, service=Service(max_delay_seconds=60.0, penalty=2.0))
    >>> move = Move("A/0", "A", "B", 4.0, (Task("f", Load(0.5), units=0.5),))
    >>> owed = outage_penalty(contract, move, start=100.0, end=112.0)
    >>> owed.id, owed.payer, owed.amount
    ('A/0/outage', 'B', 12.0)
    """
    if end < start:
        raise ContractError(f"outage of {move.id} ends before it starts", hint="Give start <= end")
    amount = 0.0 if contract.service is None else contract.service.penalty * move.units * (end - start)
    return (
        Payment(f"{move.id}/outage", move.taker, move.giver, amount, PaymentReason.PENALTY, end) if amount > 0 else None
    )
