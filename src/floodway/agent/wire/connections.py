"""Accepting connections: as many as `ConnectionRoom` lets in, each with a time limit for what it owes.

A connection owes a TLS handshake and the head of a request within `HEAD_SECONDS`, and the head of the next one as soon
after an answer. Who owes longer is closed, and so is who must make room. Bodies have a limit of their own (`guard.py`).

Which connections a server keeps when there are more than it has room for. Pure: numbers in, numbers to close out.

A connection is *pending* until a request on it has proved that its sender may ask. Pending ones are worth little, and
the older the less: an honest sender is done with its headers in milliseconds. So room is made by closing the oldest
pending connection:

    an address with `per_address` pending ones        its own oldest
    all addresses together with `most` connections    the oldest of the address that has most pending ones
    strangers with `most - reserve` connections       a stranger's; the reserve is for addresses that proved themselves

Proven connections are never closed for others. If they take all the room, a newcomer is turned away.

>>> room = ConnectionRoom(most=3, per_address=2, reserve=1)
>>> room.opened(1, "a"), room.opened(2, "a"), room.opened(3, "a")
([], [], [1])
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import h11
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from floodway.agent.wire.guard import CERTIFICATE, PROVEN, common_name

MOST_KNOWN = 1024
"""Addresses that are remembered as known, those heard last."""


class ConnectionRoom:
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


HEAD_SECONDS = 5.0
_NO_FILES_SECONDS = 0.05
_BACKLOG = 128


class TimedProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with a limit for every head; requests carry the name in the certificate."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        head_seconds: float,
        *,
        on_proven: Callable[[], None],
        on_lost: Callable[[], None],
        on_malformed: Callable[[], Response],
    ) -> None:
        super().__init__(config, server_state, {PROVEN: on_proven})
        self._head_seconds = head_seconds
        self._on_lost = on_lost
        self._on_malformed = on_malformed
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the name in the certificate, and begin to wait for a head."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        if self.scheme == "https":
            self.app_state = {**self.app_state, CERTIFICATE: common_name(transport.get_extra_info("peercert"))}
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait, and say so."""
        self._got_head()
        super().connection_lost(exc)
        self._on_lost()

    def handle_events(self) -> None:
        """A head that is whole has a cycle that is under way."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._got_head()

    def on_response_complete(self) -> None:
        """What is left of the request, and the head of the next one, must not take long either."""
        self._await_head()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, which the guard never sees, as the guard would."""
        answer = self._on_malformed()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        events = [
            h11.Response(status_code=answer.status_code, headers=headers),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_head(self) -> None:
        self._got_head()
        self._limit = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _got_head(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class Connections:
    """Accepts on a listening socket until it is cancelled."""

    def __init__(
        self,
        config: uvicorn.Config,
        context: ssl.SSLContext | None,
        *,
        on_malformed: Callable[[], Response],
        admission: ConnectionRoom | None = None,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self._on_malformed = on_malformed
        self._config = config
        self._context = context
        self._admission = admission or ConnectionRoom()
        self._head_seconds = head_seconds
        self._state = ServerState()
        self._sockets: dict[int, socket.socket] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = count()

    async def serve(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Accept for ever; `ready` is called when the first can come."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        # Not `sock_accept`: cancelled at the wrong moment it loses the connection that it has just accepted.
        loop.add_reader(listener, self._accept, listener)
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(listener)
            await self._end()

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection, and close those that must make room for it."""
        loop = asyncio.get_running_loop()
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it was gone before it was taken
        except OSError:  # out of file descriptors: without a pause the listener would be ready again at once
            loop.remove_reader(listener)
            loop.call_later(_NO_FILES_SECONDS, loop.add_reader, listener, self._accept, listener)
            return
        number = next(self._numbers)
        closing = self._admission.opened(number, str(address[0]))
        for one in closing:
            self._shut(one)
        if number in closing:
            accepted.close()
            return
        self._sockets[number] = accepted
        task = loop.create_task(self._serve_one(number, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_one(self, number: int, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def protocol() -> TimedProtocol:
            proven = partial(self._admission.proven, number)
            return TimedProtocol(
                *(self._config, self._state, self._head_seconds),
                on_proven=proven, on_lost=gone.set, on_malformed=self._on_malformed,
            )  # fmt: skip

        try:
            limit = self._head_seconds if self._context is not None else None
            await loop.connect_accepted_socket(
                protocol, accepted, ssl=self._context, ssl_handshake_timeout=limit, ssl_shutdown_timeout=limit
            )
            await gone.wait()
        except (OSError, ssl.SSLError):  # a handshake that failed or took too long
            pass
        finally:
            self._admission.closed(number)
            self._sockets.pop(number, None)
            accepted.close()

    def _shut(self, number: int) -> None:
        """End a connection, whatever it is doing; its transport sees the end and cleans up."""
        found = self._sockets.get(number)
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    async def _end(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        for number in list(self._sockets):
            self._shut(number)
        for task in [*self._tasks, *self._state.tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._state.tasks, return_exceptions=True)
        for accepted in self._sockets.values():  # of tasks that were cancelled before they began
            accepted.close()
