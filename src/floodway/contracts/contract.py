"""A contract: what one participant pays another for each unit of load it gives, agreed before anything runs.

Contracts are directed: `giver` pays `taker`; an agreement in both directions is two of them. There is at most one for
each pair and direction (contracts paper, section 3.2). A fixed price is a range of width 0. `kinds` limits what may
move, `may_pass_on` whether the taker may move it further, `service` what happens when the taker is too slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from floodway.contracts.cost import TOLERANCE
from floodway.contracts.load import Task
from floodway.errors import ContractError, suggestion


@dataclass(frozen=True, slots=True)
class Service:
    """Minimum service: mean delay of a tuple at the taker, and what a unit of load earns per second where it is missed.

    It is missed where tuples take longer, and where some of them are dropped.
    """

    max_delay_seconds: float
    penalty: float

    def __post_init__(self) -> None:
        if not (isfinite(self.max_delay_seconds) and self.max_delay_seconds > 0):
            raise ContractError(
                f"service allows a delay of {self.max_delay_seconds} s", hint="Give a number of seconds above 0"
            )
        if not (isfinite(self.penalty) and self.penalty >= 0):
            raise ContractError(f"penalty is {self.penalty}", hint="Give 0 or more for each unit and second")

    def missed(self, delay_seconds: float, keep: float = 1.0) -> bool:
        """Whether tuples took too long, or only a share `keep` of them was kept."""
        return delay_seconds > self.max_delay_seconds or keep < 1.0

    def penalty_for(self, delay_seconds: float, units: float, seconds: float, *, keep: float = 1.0) -> float:
        """What the taker owes for `units` of load whose tuples took `delay_seconds` during `seconds`.

        >>> service = Service(max_delay_seconds=0.5, penalty=2.0)
        >>> service.penalty_for(0.8, units=3.0, seconds=10.0)
        60.0
        >>> service.penalty_for(0.1, units=3.0, seconds=10.0, keep=0.9)
        60.0
        """
        return self.penalty * units * seconds if self.missed(delay_seconds, keep) else 0.0


@dataclass(frozen=True, slots=True)
class Contract:
    """Price range for each unit of load that `giver` moves to `taker`; `kinds` None means any task.

    >>> contract = Contract("A", "B", 0.2, 0.3, kinds=frozenset({"filter"}))
    >>> contract.clamp(0.5), contract.fixed
    (0.3, False)
    """

    giver: str
    taker: str
    min_price: float
    max_price: float
    kinds: frozenset[str] | None = None
    may_pass_on: bool = True
    service: Service | None = None

    def __post_init__(self) -> None:
        where = f"contract {self}"
        if not self.giver or not self.taker or self.giver == self.taker:
            raise ContractError(f"{where} needs two different participants", hint="Name giver and taker")
        if not (isfinite(self.min_price) and isfinite(self.max_price)):
            raise ContractError(f"{where} has no finite prices", hint="Give min_price and max_price as numbers")
        if self.min_price < 0:
            raise ContractError(f"{where} has the negative price {self.min_price}", hint="Give 0 or more")
        if self.min_price > self.max_price:
            raise ContractError(
                f"{where} has the range [{self.min_price}, {self.max_price}] upside down",
                hint="min_price must not exceed max_price; equal prices make a fixed-price contract",
            )

    def __str__(self) -> str:
        return f"{self.giver}->{self.taker}"

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to negotiate."""
        return self.min_price == self.max_price

    def clamp(self, price: float) -> float:
        """The nearest price within the range."""
        return min(max(price, self.min_price), self.max_price)

    def covers(self, price: float) -> bool:
        """Whether a price lies within the range."""
        return self.min_price * (1 - TOLERANCE) <= price <= self.max_price * (1 + TOLERANCE)

    def allows(self, task: Task) -> bool:
        """Whether the contract lets this kind of task move."""
        return self.kinds is None or task.kind in self.kinds

    def check(self, price: float, tasks: Iterable[Task]) -> None:
        """Refuse a price outside the range and tasks that may not move."""
        if not self.covers(price):
            raise ContractError(
                f"price {price} is outside [{self.min_price}, {self.max_price}] of contract {self}",
                hint="Offer within the contracted range",
            )
        for task in tasks:
            if not self.allows(task):
                raise ContractError(
                    f"task {task.name!r} of kind {task.kind!r} may not move under contract {self}",
                    hint=f"It allows {', '.join(sorted(self.kinds or ())) or 'nothing'}",
                )


def as_giver(name: str, contracts: Iterable[Contract]) -> dict[str, Contract]:
    """The contracts under which `name` gives load, by taker; two for one pair are refused."""
    return _by_partner((contract.taker, contract) for contract in contracts if contract.giver == name)


def as_taker(name: str, contracts: Iterable[Contract]) -> dict[str, Contract]:
    """The contracts under which `name` takes load, by giver; two for one pair are refused."""
    return _by_partner((contract.giver, contract) for contract in contracts if contract.taker == name)


def with_partner(contracts: Mapping[str, Contract], partner: str, *, me: str) -> Contract:
    """The contract with a partner, or an error that names the nearest one."""
    if partner in contracts:
        return contracts[partner]
    hint = suggestion(partner, sorted(contracts))
    raise ContractError(f"{me} has no contract with {partner!r} in this direction", hint=hint)


def _by_partner(pairs: Iterable[tuple[str, Contract]]) -> dict[str, Contract]:
    found: dict[str, Contract] = {}
    for partner, contract in pairs:
        if partner in found:
            raise ContractError(f"there are two contracts {contract}", hint="Keep one for each pair and direction")
        found[partner] = contract
    return found
