"""The one gate that every request passes: size, signature, time, nonce; what fails is counted and goes no further.

Answers to requests that were signed are signed too, with the same key; refusals of such requests included.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections import Counter
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floodway.agent.wire.certified import CERTIFICATE
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import (
    NONCE_HEADER,
    READ_PATHS,
    SIGNATURE_HEADER,
    TOKEN_HEADER,
    Security,
    Verifier,
    sign_answer,
)

BODY_SECONDS = 10.0
SENDER = "sender"
"""In a request's state: who sent it, as its key or certificate proves; None where neither tells."""


class Guard:
    """ASGI middleware: what is behind it sees whole bodies within bounds, from senders that may send them."""

    def __init__(
        self,
        app: ASGIApp,
        security: Security,
        *,
        max_bytes: int,
        clock: Callable[[], float],
        refused: Counter[str],
        open_paths: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._open = open_paths
        self._security = security
        self._max_bytes = max_bytes
        self._clock = clock
        self._refused = refused
        self._keys = security.known_keys()
        self._verifier = Verifier(self._keys, clock()) if self._keys else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer with the reason."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                self._refused["unknown"] += 1
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = SignedAnswer(send)
        try:
            body = await self._checked(scope, receive, answer)
        except RefusedError as error:
            self._refused[error.reason] += 1
            await refusal(error)(scope, receive, answer)
            return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, answer)

    async def _checked(self, scope: Scope, receive: Receive, answer: SignedAnswer) -> bytes:
        headers = Headers(scope=scope)
        if not self._security.authenticated:
            _check_local(headers)
        body = await self._body(headers, receive)
        state = scope.setdefault("state", {})
        state[SENDER] = state.get(CERTIFICATE)
        if self._verifier is not None and not self._is_open(scope) and not self._may_read(scope, headers):
            raw = scope.get("raw_path") or scope["path"].encode()
            query = scope.get("query_string") or b""
            target = (raw + b"?" + query if query else raw).decode("latin-1")
            signer = self._verifier.signer(scope["method"], target, headers, body)
            answer.sign_with(self._keys[signer], headers[NONCE_HEADER])
            self._verifier.admit(signer, headers, self._clock())
            if signer and state[SENDER] not in (None, signer):
                raise RefusedError("forged", f"{state[SENDER]} sent what {signer} signed", hint="Use your own key")
            state[SENDER] = signer or state[SENDER]
        return body

    def _is_open(self, scope: Scope) -> bool:
        """Whether this is a page's own file, which holds no secret and which a browser cannot sign for."""
        path = scope["path"]
        return scope["method"] == "GET" and any(
            path == known or (known != "/" and known.endswith("/") and path.startswith(known)) for known in self._open
        )

    def _may_read(self, scope: Scope, headers: Headers) -> bool:
        """Whether this asks for figures with the token that opens them; a wrong one is refused as such."""
        token = self._security.token
        kind, _, given = headers.get(TOKEN_HEADER, "").partition(" ")
        if token is None or kind.lower() != "bearer" or scope["method"] != "GET" or scope["path"] not in READ_PATHS:
            return False
        if not hmac.compare_digest(given.strip().encode("utf-8", "replace"), token):
            raise RefusedError("bad-token", "the read token is not the one of this agent", hint="Give it the same file")
        return True

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        told = headers.get("content-length", "0")
        if told.isdecimal() and int(told[:20]) > self._max_bytes:
            raise self._oversized()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError("malformed", "the sender hung up before the end of its message")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_bytes:
                        raise self._oversized()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            raise RefusedError("slow", f"the body did not arrive within {BODY_SECONDS:g} s") from error

    def _oversized(self) -> RefusedError:
        return RefusedError("oversized", f"the body is larger than {self._max_bytes} bytes")


class SignedAnswer:
    """An ASGI `send` that signs an answer once it is told the key; one that comes in several parts stays unsigned."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._signed_with: tuple[bytes, str] | None = None
        self._start: Message | None = None

    def sign_with(self, key: bytes, nonce: str) -> None:
        """From now on, sign: the request with this nonce was signed with this key."""
        self._signed_with = key, nonce

    async def __call__(self, message: Message) -> None:
        """Hold the start back until the body is known, then send both."""
        if self._signed_with is None:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message
        else:
            start, self._start = self._start, None
            if start is not None:
                if not message.get("more_body", False):
                    key, nonce = self._signed_with
                    signature = sign_answer(key, start["status"], nonce, message.get("body", b""))
                    header = (SIGNATURE_HEADER.encode(), signature.encode())
                    start = {**start, "headers": [*start.get("headers", ()), header]}
                await self._send(start)
            await self._send(message)


def refusal(error: RefusedError) -> JSONResponse:
    """The answer to a refused message."""
    return JSONResponse({"refused": error.reason, "message": str(error)}, error.status)


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_local(headers: Headers) -> None:
    """Without authentication the address is loopback, but a web page open on this machine may try to reach it.

    A browser tells: its Origin is the page's site, and after a change of DNS the Host is still the site's name.
    """
    host = headers.get("host", "")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    origin = headers.get("origin")
    own = origin is None or origin.removeprefix("http://") == host
    if not own or (host and not is_loopback(name.strip("[]"))):
        raise RefusedError("foreign", "the request comes from a page of another site", hint="Use the loopback address")
