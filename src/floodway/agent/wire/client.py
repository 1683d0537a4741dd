"""Asking another agent: one request, one answer, within a time and a size; on the standard library alone.

The first signed request to a process is refused with its epoch, in a signed answer, and sent again (`signing.py`);
so is one that comes too early or too late by the clock of a peer that was restarted, or of a machine that slept.

An HTTP connection with one time limit for all of it: connecting, handshake, request, every byte of the answer.

A socket's own time-out starts anew with every read, so a peer that sends a byte a second is never late for it. Here the
time that is left is set before every operation.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Queue
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Buffer

from floodway.agent.wire.guard import common_name
from floodway.agent.wire.server import MAX_BYTES
from floodway.agent.wire.signing import (
    NONCE_HEADER,
    READ_PATHS,
    SIGNATURE_HEADER,
    TOKEN_HEADER,
    Security,
    answer_fault,
    signed_headers,
)
from floodway.errors import FloodwayError, InputError
from floodway.json_text import load_json

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
        for family, kind, protocol, _, address in _addresses(self.host, self.port, self._deadline):
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


def _addresses(host: str, port: int, deadline: Deadline) -> Sequence[tuple[Any, ...]]:
    """The addresses of a host. A resolver has time limits of its own: it is asked on a thread, which is left behind."""
    with suppress(OSError):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    found: Queue[Sequence[tuple[Any, ...]] | OSError] = Queue()

    def resolve() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)

    threading.Thread(target=resolve, name=f"resolve {host}", daemon=True).start()
    try:
        answer = found.get(timeout=deadline.left())
    except Empty:
        raise TimeoutError(f"{host} is not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


_BEFORE_THE_KEY = ("unsigned", "bad-signature", "oversized", "slow", "foreign")
"""Refusals of a guard that has not found out which key the request was signed with, so that it cannot sign."""

_MOST_EPOCH = 64


class PeerError(FloodwayError):
    """A peer that did not answer (`reason` is `unreachable`) or refused (its reason, see `refusals.REASONS`).

    With a key, an answer that is not signed (`unsigned-answer`) or wrongly (`bad-answer`) counts as none; `proven`
    says whether the refusal is the peer's own.
    """

    def __init__(self, reason: str, message: str, *, hint: str | None = None, proven: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.proven = proven

    @property
    def unreachable(self) -> bool:
        """Whether the peer gave no answer that counts: it may come back, and may have taken what it was told."""
        return self.reason == "unreachable" or not self.proven


class _UnmetError(PeerError):
    """A signed refusal that tells the peer's epoch and its seconds."""

    def __init__(self, reason: str, message: str, epoch: str, seconds: float) -> None:
        super().__init__(reason, message)
        self.epoch = epoch
        self.seconds = seconds


class Client:
    """Talks to one peer. Every request is a connection of its own: peers come and go, and messages are rare.

    With TLS and `peer`, the peer's certificate must carry that name. An exchange is over after `timeout_seconds`,
    however slowly the peer goes on. `clock` is monotonic.
    """

    def __init__(
        self,
        url: str,
        security: Security | None = None,
        timeout_seconds: float = 2.0,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        peer: str | None = None,
    ) -> None:
        security = security or Security()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise InputError(f"{url!r} is not the address of an agent", hint="Write it as http://127.0.0.1:8700")
        if security.tls is not None and parts.scheme != "https":
            raise InputError(f"{url!r} is not encrypted, but certificates are given", hint="Write it with https://")
        try:
            self._port = parts.port
        except ValueError as error:
            raise InputError(f"{url!r} has no usable port", hint="Write it as http://127.0.0.1:8700") from error
        self.url = url.rstrip("/")
        self._peer = peer
        self._host = parts.hostname
        self._key = security.key
        self._token = security.token
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._met: tuple[str, float] | None = None
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            tls = security.tls
            self._context = ssl.create_default_context() if tls is None else tls.context(server=False)

    def get_json(self, path: str) -> Any:
        """What the peer answers to GET, decoded."""
        return self._decoded(self._ask("GET", path, b"", None))

    def post_json(self, path: str, obj: object) -> Any:
        """Send an object as JSON and decode the answer."""
        body = json.dumps(obj, separators=(",", ":"), allow_nan=False).encode()
        return self._decoded(self._ask("POST", path, body, "application/json"))

    def post_bytes(self, path: str, body: bytes) -> bytes:
        """Send bytes, return the answer's bytes."""
        return self._ask("POST", path, body, "application/octet-stream")

    def _ask(self, method: str, path: str, body: bytes, kind: str | None) -> bytes:
        deadline = Deadline(self._timeout, self._clock)
        try:
            return self._ask_once(method, path, body, kind, deadline)
        except _UnmetError as error:
            self._met = error.epoch, error.seconds - self._clock()
        return self._ask_once(method, path, body, kind, deadline)

    def _ask_once(self, method: str, path: str, body: bytes, kind: str | None, deadline: Deadline) -> bytes:
        headers = {} if kind is None else {"content-type": kind}
        if self._key is not None:
            epoch, ahead = self._met or ("", 0.0)
            headers |= signed_headers(self._key, method, path, body, epoch, self._clock() + ahead)
        elif self._token is not None and method == "GET" and path in READ_PATHS:
            headers[TOKEN_HEADER] = f"Bearer {self._token.decode('latin-1')}"
        status, answer, signature = self.exchange(method, path, body, headers, deadline)
        if len(answer) > self._max_bytes:
            raise PeerError("oversized", f"{self.url}{path} answered with more than {self._max_bytes} bytes")
        if self._key is not None:
            self._check(answer, status, headers[NONCE_HEADER], signature)
        if status >= 300:
            reason, words = _refusal(answer, status, f"{self.url}{path}")
            told = _meeting(answer) if self._key is not None and reason in ("unmet", "stale") else None
            raise PeerError(reason, words) if told is None else _UnmetError(reason, words, *told)
        return answer

    def exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str], deadline: Deadline | None = None
    ) -> tuple[int, bytes, str | None]:
        """One request over the wire: status, body and signature of what came back, none of it checked."""
        connection = TimedConnection(
            self._host, self._port, deadline or Deadline(self._timeout, self._clock), self._context
        )
        try:
            self._meet(connection)
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return response.status, response.read(self._max_bytes + 1), response.getheader(SIGNATURE_HEADER)
        except (OSError, http.client.HTTPException) as error:
            hint = "It continues with its last plan until the peer is back"
            raise PeerError(
                "unreachable", f"{self.url} does not answer: {error or type(error).__name__}", hint=hint
            ) from error
        finally:
            connection.close()

    def _check(self, answer: bytes, status: int, nonce: str, signature: str | None) -> None:
        """Take an answer only from one who has the key, and only to this request."""
        fault = answer_fault(self._key or b"", status, nonce, answer, signature)
        if fault is None:
            return
        told, words = _refusal(answer, status, self.url)
        if fault == "unsigned-answer" and status >= 300 and told in _BEFORE_THE_KEY:
            raise PeerError(told, words, hint="Do both sides have one key?", proven=False)
        what = "is not signed" if fault == "unsigned-answer" else "has a signature that does not fit"
        raise PeerError(fault, f"an answer {what}: {words}", hint="Do both sides sign answers?", proven=False)

    def _meet(self, connection: TimedConnection) -> None:
        """Connect, and see by its certificate that the peer is the one that is meant, if one is."""
        connection.connect()
        if self._peer is None or connection.certificate is None:
            return
        found = common_name(connection.certificate)
        if found != self._peer:
            raise PeerError(
                "forged",
                f"the certificate of {self.url} is of {found or 'nobody'}, not {self._peer}",
                hint="A member's certificate has its name as commonName",
            )

    def _decoded(self, answer: bytes) -> Any:
        try:
            return load_json(answer)
        except (ValueError, RecursionError) as error:
            raise PeerError("malformed", f"{self.url} answered with something that is not JSON") from error


def _refusal(answer: bytes, status: int, where: str) -> tuple[str, str]:
    try:
        told = load_json(answer)
        return str(told["refused"])[:40], f"{where} refused: {str(told['message'])[:300]}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return "failed", f"{where} answered with status {status}"


def _meeting(answer: bytes) -> tuple[str, float] | None:
    """The epoch and the seconds in a refusal."""
    try:
        told = load_json(answer)
        return str(told["epoch"])[:_MOST_EPOCH], float(told["seconds"])
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError):
        return None
