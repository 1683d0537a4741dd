"""Contracts as the tests of several rooms need them."""

from __future__ import annotations

from floodway.contracts.contract import Contract


def fixed_price(giver: str, taker: str, price: float) -> Contract:
    """A contract with one price and no restrictions."""
    return Contract(giver, taker, price, price)


def bilateral(one: str, other: str, min_price: float, max_price: float) -> tuple[Contract, Contract]:
    """The same range in both directions."""
    return Contract(one, other, min_price, max_price), Contract(other, one, min_price, max_price)
