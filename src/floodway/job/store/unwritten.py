"""What a store has refused, until it writes again: a disk that was full for a while loses no account."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from floodway.job.store.store import StoreError

Item = TypeVar("Item")

MOST = 10_000
"""Items kept in memory; of more the oldest go."""


class Unwritten(Generic[Item]):
    """Hands items on in order, each until `write` has taken it; `write` takes all that it is given, or raises.

    >>> taken = []
    >>> waiting = Unwritten(taken.extend)
    >>> waiting.write(["a"]); waiting.write(["b"]); taken
    ['a', 'b']
    """

    def __init__(self, write: Callable[[Sequence[Item]], object]) -> None:
        self._write = write
        self._items: list[Item] = []

    def write(self, items: Iterable[Item]) -> None:
        """These after those that wait. Raises what the store says; they are tried again with the next ones."""
        wanted = [*self._items, *items]
        try:
            self._write(wanted)
        except (StoreError, OSError):
            self._items = wanted[-MOST:]
            raise
        self._items = []
