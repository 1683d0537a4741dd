"""The one gate that every request passes: site, signature, epoch, time, nonce, size; what fails is counted.

The order is from cheap to dear: who may not ask costs headers, and not a byte of a body is read for it. Bodies that are
read at the same time share a bounded room. Answers to requests that were signed are signed too, with the same key;
refusals of such requests included.

Whose certificate a connection came with, and in whose name it may speak.

The name is the subject's commonName: a node's, `coordinator`, `operator`, or a member's of a federation. Host names in
the certificate say where it runs, not who it is. Anybody with a certificate of the authority may read; messages are
taken from the one that they name as their sender, and modes from operators.

What a browser must not do for a web page of another site: reach an agent, read its answers, or frame its page.

A browser says where a request comes from: `Origin` is the site of the page, `Sec-Fetch-Site` how that is related to the
site asked, and after a change of DNS (rebinding) `Host` is still the site's name. Other programs send none of these and
go on to the signature. A link on another site may open the page, in a tab of its own: a navigation brings nothing with
it and gives nothing back.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

SAFE_METHODS = ("GET", "HEAD")
ANSWER_HEADERS = {
    # Nothing that an agent answers is a document, but for the page, which names its own policy.
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
"""In every answer, unless the route gives another value."""


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_site(scope: Scope, headers: Headers, *, authenticated: bool) -> None:
    """Refuse what a page of another site sends; without authentication also what names another host than loopback."""
    host = headers.get("host", "")
    opened = scope["method"] in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    opened = opened and headers.get("sec-fetch-dest") == "document"
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    # Not its scheme: a proxy may speak TLS to the browser.
    own = origin is None or origin.partition("://")[2] == host != ""
    local = authenticated or not host or is_loopback(_name(host))
    if not own or not local or (site not in ("same-origin", "none") and not opened):
        raise RefusedError("foreign", "the request comes from a page of another site", hint="Use the loopback address")


def _name(host: str) -> str:
    """The host without its port.

    >>> [_name(host) for host in ("127.0.0.1:80", "[::1]:80", "[::1]", "localhost")]
    ['127.0.0.1', '::1', '::1', 'localhost']
    """
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return name.strip("[]")


CERTIFICATE = "certificate"
"""In the state of a request over TLS: the name in the certificate of the connection, None if it names nobody."""


def check_speaker(state: Mapping[str, Any], name: str) -> None:
    """Refuse what is said in another name than that of the connection's certificate; without TLS there is none."""
    if CERTIFICATE in state and state[CERTIFICATE] != name:
        raise RefusedError(
            "forged",
            f"a certificate of {state[CERTIFICATE] or 'nobody'} speaks as {name}",
            hint=f"Use one whose commonName is {name}",
        )


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject's commonName in what `getpeercert` returns; None without one, or with several.

    >>> common_name({"subject": ((("organizationName", "us"),), (("commonName", "A"),))})
    'A'
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    return names[0] if len(names) == 1 else None


BODY_SECONDS = 10.0
BODIES_BYTES = 64 * 2**20
"""What all bodies that are held at the same time may take."""
SENDER = "sender"
"""In a request's state: who sent it, as its key or certificate proves; None where neither tells."""
PROVEN = "proven"
"""In a request's state: what to call when the connection has proved that it may ask."""


class Guard:
    """ASGI middleware: what is behind it sees whole bodies within bounds, from senders that may send them.

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        security: Security,
        *,
        max_bytes: int,
        refused: Counter[str],
        clock: Callable[[], float] = time.monotonic,
        open_paths: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._open = open_paths
        self._security = security
        self._max_bytes = max_bytes
        self._refused = refused
        self._keys = security.known_keys()
        self._verifier = Verifier(self._keys, clock=clock) if self._keys else None
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer with the reason."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                self._refused["unknown"] += 1
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = GuardedAnswer(send)
        body = HeldBody(self)
        try:
            await self._checked(scope, receive, answer, body)
            await self._app(scope, body.replayed(receive), answer)
        except RefusedError as error:
            if error.reason != "unmet":
                self._refused[error.reason] += 1
            await refusal(error)(scope, receive, answer)
        finally:
            body.release()

    async def _checked(self, scope: Scope, receive: Receive, answer: GuardedAnswer, body: HeldBody) -> None:
        headers = Headers(scope=scope)
        check_site(scope, headers, authenticated=self._security.authenticated)
        state = scope.setdefault("state", {})
        state[SENDER] = state.get(CERTIFICATE)
        if self._is_open(scope):
            return
        if self._verifier is None or self._may_read(scope, headers):
            state.get(PROVEN, _nothing)()
            await self._read(headers, receive, body)
            return
        raw = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string") or b""
        target = (raw + b"?" + query if query else raw).decode("latin-1")
        signer = self._verifier.signer(scope["method"], target, headers)
        answer.sign_with(self._keys[signer], headers[NONCE_HEADER])
        self._verifier.admit(signer, headers)
        state.get(PROVEN, _nothing)()
        await self._read(headers, receive, body)
        self._verifier.check_body(headers, body.whole)
        if signer and state[SENDER] not in (None, signer):
            raise RefusedError("forged", f"{state[SENDER]} sent what {signer} signed", hint="Use your own key")
        state[SENDER] = signer or state[SENDER]

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

    async def _read(self, headers: Headers, receive: Receive, body: HeldBody) -> None:
        told = headers.get("content-length", "0")
        if told.isdecimal() and int(told[:20]) > self._max_bytes:
            raise self._oversized()
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError("malformed", "the sender hung up before the end of its message")
                    part = message.get("body", b"")
                    body.grow(len(part))
                    parts.append(part)
                    if body.size > self._max_bytes:
                        raise self._oversized()
                    if not message.get("more_body", False):
                        body.whole = b"".join(parts)
                        return
        except TimeoutError as error:
            raise RefusedError("slow", f"the body did not arrive within {BODY_SECONDS:g} s") from error

    def hold(self, size: int) -> None:
        """Give room to some bytes of a body, or take it back."""
        if size > 0 and self._held + size > BODIES_BYTES:
            raise RefusedError("busy", f"bodies of more than {BODIES_BYTES} bytes are under way")
        self._held += size

    def _oversized(self) -> RefusedError:
        return RefusedError("oversized", f"the body is larger than {self._max_bytes} bytes")


class HeldBody:
    """The body of one request, counted against the room of all while the request is handled."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.size = 0
        self.whole = b""

    def grow(self, size: int) -> None:
        """Some bytes have come."""
        self._guard.hold(size)
        self.size += size

    def release(self) -> None:
        """The request is done."""
        self._guard.hold(-self.size)
        self.size, self.whole = 0, b""

    def replayed(self, receive: Receive) -> Receive:
        """An ASGI `receive` that gives the body as a whole."""
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": self.whole, "more_body": False}

        return whole


class GuardedAnswer:
    """An ASGI `send` that adds what browsers must be told, and signs an answer once it has the key.

    One that comes in several parts stays unsigned.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._signed_with: tuple[bytes, str] | None = None
        self._start: Message | None = None

    def sign_with(self, key: bytes, nonce: str) -> None:
        """From now on, sign: the request with this nonce was signed with this key."""
        self._signed_with = key, nonce

    async def __call__(self, message: Message) -> None:
        """Hold the start back until the body is known, then send both."""
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode()) for name, value in ANSWER_HEADERS.items()]
            kept = [pair for pair in more if pair[0] not in given]
            message = {**message, "headers": [*message.get("headers", ()), *kept]}
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
    return JSONResponse({"refused": error.reason, "message": str(error), **error.details}, error.status)


def _nothing() -> None:
    """Nobody counts connections here."""
