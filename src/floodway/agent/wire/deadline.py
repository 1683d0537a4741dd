"""An HTTP connection with one time limit for all of it: connecting, handshake, request, every byte of the answer.

A socket's own time-out starts anew with every read, so a peer that sends a byte a second is never late for it. Here the
time that is left is set before every operation. Looking up a host name is the operating system's and is not limited.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable

from typing_extensions import Buffer

_PART_BYTES = 65_536


class Deadline:
    """A moment by which something must be done, on a monotonic clock."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    def left(self) -> float:
        """Seconds until then; TimeoutError when it is over."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")
        return left


class TimedSocket:
    """As much of a socket as `http.client` uses, every operation within the deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self.sock = sock
        self._deadline = deadline

    def sendall(self, data: Buffer) -> None:
        """Send all of it."""
        view = memoryview(data).cast("B")
        while view:
            self.sock.settimeout(self._deadline.left())
            view = view[self.sock.send(view[:_PART_BYTES]) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """What is received, as a file."""
        return io.BufferedReader(_Received(self.sock, self._deadline))

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


class _Received(io.RawIOBase):
    """The socket's own raw file, which keeps the socket open until it is closed itself."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int | None:
        self._sock.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedConnection(http.client.HTTPConnection):
    """A connection to one peer, over TLS if there is a context; `certificate` is what the peer showed."""

    def __init__(self, host: str, port: int | None, deadline: Deadline, context: ssl.SSLContext | None = None) -> None:
        super().__init__(host, port or (http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT))
        self._deadline = deadline
        self._tls = context
        self.certificate: dict[str, object] | None = None

    def connect(self) -> None:
        """Connect to the first address of the host that answers."""
        sock = self._connected()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(self._deadline.left())
                secured = self._tls.wrap_socket(sock, server_hostname=self.host)
                self.certificate = dict(secured.getpeercert() or {})
                sock = secured
        except BaseException:
            sock.close()
            raise
        self.sock = TimedSocket(sock, self._deadline)

    def _connected(self) -> socket.socket:
        failed: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self._deadline.left())
                sock.connect(address)
            except OSError as error:
                sock.close()
                failed = error
            else:
                return sock
        raise failed or OSError(f"{self.host} has no address")
