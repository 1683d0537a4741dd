"""An agent's HTTP server: routes behind one guard, on a thread of its own.

On loopback by default; any other address needs a key or certificates. Connections and bodies are bounded before anybody
has proved who they are (`connections.py`, `guard.py`). Nothing is written to stdout or logged: what
was refused is in `refused`, by reason.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from floodway.agent.wire.connections import HEAD_SECONDS, ConnectionRoom, Connections
from floodway.agent.wire.guard import ANSWER_HEADERS, Guard, is_loopback, refusal
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.errors import FloodwayError, InputError

MAX_BYTES = 8 * 2**20
_START_SECONDS, _STOP_SECONDS = 120.0, 30.0
"""Bounds for what is broken: on an overloaded machine a thread may have to wait for many seconds."""
_LOOK_SECONDS = 0.5


class ServerError(FloodwayError):
    """The server could not start: the port is taken, or the address is not this machine's."""


def guarded(
    routes: Sequence[BaseRoute],
    security: Security,
    *,
    max_bytes: int = MAX_BYTES,
    clock: Callable[[], float] = time.monotonic,
    refused: Counter[str],
    open_paths: tuple[str, ...] = (),
) -> Guard:
    """The routes as an ASGI application behind the guard; unknown paths and methods are refused and counted too."""

    def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = RefusedError("unknown", f"{request.method} {request.url.path}: {error.detail}")
        elif not isinstance(error, RefusedError):
            error = RefusedError("failed", f"{request.method} {request.url.path} failed here")
        refused[error.reason] += 1
        return refusal(error)

    handlers = {HTTPException: answer, RefusedError: answer, Exception: answer}
    app = Starlette(routes=list(routes), exception_handlers=handlers)
    return Guard(app, security, max_bytes=max_bytes, clock=clock, refused=refused, open_paths=open_paths)


class HttpServer:
    """Serves routes from `start` to `stop`; port 0 takes a free one, which `url` tells.

    `open_paths` may be read without a signature (`/static/` stands for all below it): a page's files, never its data.
    """

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        security: Security | None = None,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        open_paths: tuple[str, ...] = (),
        admission: ConnectionRoom | None = None,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        security = security or Security()
        if not is_loopback(host) and not security.authenticated:
            raise InputError(
                f"address {host} can be reached from outside, and nothing authenticates who asks",
                hint="Listen on 127.0.0.1, or give a key file or certificates for mutual TLS",
            )
        self.refused: Counter[str] = Counter()
        self.host = host
        self._port = port
        self._security = security
        self._app = guarded(
            routes, security, max_bytes=max_bytes, clock=clock, refused=self.refused, open_paths=open_paths
        )
        self._context = None if security.tls is None else security.tls.context(server=True)
        self._admission = admission
        self._head_seconds = head_seconds
        self._ending: Callable[[], object] = _nothing
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where it listens, such as http://127.0.0.1:41234."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._context is None else 'https'}://{host}:{self._port}"

    def start(self) -> None:
        """Listen; returns when requests are taken."""
        self._socket = self._bind()
        self._port = int(self._socket.getsockname()[1])
        started = threading.Event()
        run = self._run
        self._thread = threading.Thread(target=run, args=(self._socket, started), name=f"http {self.url}", daemon=True)
        self._thread.start()
        end = time.monotonic() + _START_SECONDS
        while not started.wait(_LOOK_SECONDS):
            if not self._thread.is_alive() or time.monotonic() > end:
                self.stop()
                hint = "See whether the machine is overloaded"
                raise ServerError(f"the server at {self.url} did not start", hint=hint)

    def stop(self) -> None:
        """Stop listening and wait for the thread; calling it again does nothing."""
        if self._thread is not None:
            self._ending()
            self._thread.join(timeout=_STOP_SECONDS)
        if self._socket is not None:
            self._socket.close()
        self._thread = self._socket = None

    def _run(self, listener: socket.socket, started: threading.Event) -> None:
        config = uvicorn.Config(
            self._app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        config.load()
        connections = Connections(
            *(config, self._context),
            on_malformed=self._malformed, admission=self._admission, head_seconds=self._head_seconds,
        )  # fmt: skip

        async def serve() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self._ending = lambda: loop.call_soon_threadsafe(task.cancel)
            with suppress(asyncio.CancelledError):
                await connections.serve(listener, started.set)

        asyncio.run(serve())

    def _malformed(self) -> Response:
        self.refused["malformed"] += 1
        answer = refusal(RefusedError("malformed", "this is no HTTP, or its head is too long"))
        answer.headers.update(ANSWER_HEADERS)
        return answer

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self._port))
        except OSError as error:
            listener.close()
            hint = "Choose another port, or 0 for any free one"
            raise ServerError(f"cannot listen on {self.host}:{self._port}: {error.strerror}", hint=hint) from error
        return listener


def _nothing() -> None:
    """Nothing is being served."""
