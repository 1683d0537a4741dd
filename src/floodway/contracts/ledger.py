"""Who owes whom: payments for load carried and penalties for service missed, as a pure book.

The giver pays price × units for every second a moved task runs at the taker; the taker pays the contract's penalty for
every second its delay breaks the promised service, it drops tuples, or it does not run the task at all. Each entry has
an id, and an id counts once: a book read back after a crash and written again stays the same. Balances add up to 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite

from floodway.contracts.contract import Contract
from floodway.contracts.errors import ContractError
from floodway.contracts.messages import Move


class Reason(StrEnum):
    """Why money changes hands."""

    LOAD = "load"
    PENALTY = "penalty"


@dataclass(frozen=True, slots=True)
class Entry:
    """One payment; `amount` is in the unit of cost times seconds."""

    id: str
    payer: str
    payee: str
    amount: float
    reason: Reason
    at: float

    def __post_init__(self) -> None:
        if not (isfinite(self.amount) and self.amount >= 0):
            raise ContractError(f"entry {self.id} is over {self.amount}", hint="Amounts are finite and 0 or more")
        if self.payer == self.payee:
            raise ContractError(f"entry {self.id} pays {self.payer} by itself", hint="Name two participants")


@dataclass(frozen=True)
class Ledger:
    """Entries by id.

    >>> book = Ledger().record(Entry("m1/0", "A", "B", 3.0, Reason.LOAD, at=10.0))
    >>> book.balances()
    {'A': -3.0, 'B': 3.0}
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def record(self, entry: Entry) -> Ledger:
        """The book with this entry; the same entry again changes nothing, another one of that id is refused."""
        known = self.entries.get(entry.id)
        if known == entry:
            return self
        if known is not None:
            raise ContractError(f"entry {entry.id} is already booked with other content", hint="Use a new id")
        return replace(self, entries={**self.entries, entry.id: entry})

    def balances(self) -> dict[str, float]:
        """What each participant has earned less what it has paid."""
        found: dict[str, float] = {}
        for entry in self.entries.values():
            found[entry.payer] = found.get(entry.payer, 0.0) - entry.amount
            found[entry.payee] = found.get(entry.payee, 0.0) + entry.amount
        return found


def payment(move: Move, *, start: float, end: float) -> Entry:
    """What the giver of a move owes for the seconds from `start` to `end`."""
    if end < start:
        raise ContractError(f"payment for {move.id} ends before it starts", hint="Give start <= end")
    amount = move.price * move.units * (end - start)
    return Entry(f"{move.id}/load/{start:.3f}", move.giver, move.taker, amount, Reason.LOAD, end)


def penalty(
    contract: Contract, move: Move, *, delay_seconds: float, start: float, end: float, keep: float = 1.0
) -> Entry | None:
    """What the taker of a move owes because its tuples took `delay_seconds`, or only a share `keep` was kept.

    None where service was kept.
    """
    if end < start:
        raise ContractError(f"penalty for {move.id} ends before it starts", hint="Give start <= end")
    service = contract.service
    owed = 0.0 if service is None else service.penalty_for(delay_seconds, move.units, end - start, keep=keep)
    if owed == 0.0:
        return None
    return Entry(f"{move.id}/penalty/{start:.3f}", move.taker, move.giver, owed, Reason.PENALTY, end)


def outage_penalty(contract: Contract, move: Move, *, start: float, end: float) -> Entry | None:
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
    return Entry(f"{move.id}/outage", move.taker, move.giver, amount, Reason.PENALTY, end) if amount > 0 else None
