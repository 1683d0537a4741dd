"""Which connections a server keeps when there are more than it has room for. Pure: numbers in, numbers to close out.

A connection is *pending* until a request on it has proved that its sender may ask. Pending ones are worth little, and
the older the less: an honest sender is done with its headers in milliseconds. So room is made by closing the oldest
pending connection:

    an address with `per_address` pending ones        its own oldest
    all addresses together with `most` connections    the oldest of the address that has most pending ones
    strangers with `most - reserve` connections       a stranger's; the reserve is for addresses that proved themselves

Proven connections are never closed for others. If they take all the room, a newcomer is turned away.

>>> room = Admission(most=3, per_address=2, reserve=1)
>>> room.opened(1, "a"), room.opened(2, "a"), room.opened(3, "a")
([], [], [1])
"""

from __future__ import annotations

from collections import Counter, OrderedDict

MOST_KNOWN = 1024
"""Addresses that are remembered as known, those heard last."""


class Admission:
    """The connections of one server, by numbers that never come again."""

    def __init__(self, *, most: int = 256, per_address: int = 64, reserve: int = 64) -> None:
        self._most = most
        self._per_address = per_address
        self._reserve = reserve
        self._address: OrderedDict[int, str] = OrderedDict()
        self._pending: OrderedDict[int, str] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._address)

    def opened(self, connection: int, address: str) -> list[int]:
        """A connection has come; those to close, itself among them if it is turned away."""
        waiting = Counter(self._pending.values())
        closing: list[int] = []
        if waiting[address] >= self._per_address:
            closing.append(self._oldest({address}))
        elif len(self._address) >= self._most and waiting:
            closing.append(self._oldest({waiting.most_common(1)[0][0]}))
        elif address not in self._known and self._strangers() >= self._most - self._reserve:
            strangers = {one for one in waiting if one not in self._known}
            closing.append(self._oldest(strangers) if strangers else connection)
        elif len(self._address) >= self._most:
            closing.append(connection)
        for one in closing:
            self.closed(one)
        if connection not in closing:
            self._address[connection] = self._pending[connection] = address
        return closing

    def proven(self, connection: int) -> None:
        """A request on it was one that may be asked."""
        address = self._pending.pop(connection, None)
        if address is not None:
            self._known[address] = None
            self._known.move_to_end(address)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def closed(self, connection: int) -> None:
        """A connection is gone; twice is once."""
        self._address.pop(connection, None)
        self._pending.pop(connection, None)

    def _strangers(self) -> int:
        return sum(address not in self._known for address in self._address.values())

    def _oldest(self, addresses: set[str]) -> int:
        return next(one for one, address in self._pending.items() if address in addresses)
