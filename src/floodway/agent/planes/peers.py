"""The shell round the pure machines: messages out over HTTP, messages in through routes, a thread that ticks.

Every peer has a thread and a short queue of its own, so that one that does not answer holds up none of the others.
Nothing is retried here: the machines repeat what was not answered, and a message that finds its queue full makes room
by pushing out the oldest, which is older news.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from floodway.agent.wire.certified import check_speaker
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import OPERATOR, AnyMessage, Mode, Noted, TablePush, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.job.clocks import PROCESS_CLOCK

QUEUE = 8
TICK_SECONDS = 0.1
PAPER_ROW_BYTES = (22, 8)
"""The papers' row of m inputs takes 22·m + 8 bytes (long paper, section 8.2.5)."""


class Machine(Protocol):
    """A state machine with its state, safe to call from any thread."""

    name: str
    network: str

    def hear(self, message: AnyMessage, now_seconds: float) -> AnyMessage | None:
        """Take a message and return the answer; `RefusedError` changes nothing."""

    def tick(self, now_seconds: float) -> tuple[AnyMessage, ...]:
        """What is to be sent now."""

    def status(self, now_seconds: float) -> dict[str, object]:
        """How it stands, for people and dashboards."""


class Traffic:
    """What was sent to whom, and how it went: Figure 15's overhead on the real wire."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def sent(self, message: AnyMessage, size: int) -> None:
        """Count a message that was answered; `paper_bytes` is what its rows would take in the papers' format."""
        with self._lock:
            self.counts["messages"] += 1
            self.counts["bytes"] += size
            if isinstance(message, TablePush) and message.form != "beat":
                each, more = PAPER_ROW_BYTES
                self.counts["tables"] += 1
                self.counts["table_bytes"] += len(message.table)
                self.counts["rows"] += message.rows
                self.counts["paper_bytes"] += message.rows * (each * len(message.useful) + more)

    def failed(self, reason: str) -> None:
        """Count a message that was not taken, by reason."""
        with self._lock:
            self.failures[reason] += 1

    def as_dict(self) -> dict[str, object]:
        """All counts."""
        with self._lock:
            return {**self.counts, "failed": dict(self.failures)}


class Peers:
    """Sends messages to agents by their names; answers go to `on_answer`."""

    def __init__(
        self,
        machine: Machine,
        urls: Mapping[str, str],
        security: Security,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
        timeout_seconds: float = 2.0,
    ) -> None:
        self.traffic = Traffic()
        self._machine = machine
        self._clock = clock
        self._clients = {name: Client(url, security, timeout_seconds, peer=name) for name, url in urls.items()}
        self._queues: dict[str, deque[AnyMessage]] = {name: deque() for name in urls}
        self._threads: dict[str, threading.Thread] = {}
        self._changed = threading.Condition()
        self._stopped = False

    def send(self, message: AnyMessage) -> None:
        """Queue a message; returns at once."""
        with self._changed:
            queue = self._queues.get(message.receiver)
            if queue is None or self._stopped:
                self.traffic.failed("no-address" if queue is None else "stopped")
                return
            if len(queue) >= QUEUE:
                queue.popleft()
                self.traffic.failed("queue-full")
            queue.append(message)
            if message.receiver not in self._threads:
                name = message.receiver
                thread = threading.Thread(target=self._work, args=(name,), name=f"peer {name}", daemon=True)
                self._threads[name] = thread
                thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """End all threads; what is queued is not sent."""
        with self._changed:
            self._stopped = True
            threads = list(self._threads.values())
            self._changed.notify_all()
        for thread in threads:
            thread.join(timeout=10.0)

    def _work(self, name: str) -> None:
        while True:
            with self._changed:
                while not self._queues[name] and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                message = self._queues[name].popleft()
            self.deliver(self._clients[name], message)

    def deliver(self, client: Client, message: AnyMessage) -> None:
        """Send one message and take its answer; what goes wrong is counted and changes nothing."""
        body = encode(message)
        try:
            told = client.post_bytes(message.path, body)
            self.traffic.sent(message, len(body))
            answer = decode(told, network=self._machine.network, receiver=self._machine.name)
            if answer.sender != message.receiver:
                raise RefusedError("unknown", f"{answer.sender!r} answers for {message.receiver!r}")
            self._machine.hear(answer, self._clock())
        except (PeerError, RefusedError) as error:
            self.traffic.failed(error.reason)


class PeerLoop:
    """Ticks a machine on a thread of its own and sends what it returns; `tick` may also be called by others."""

    def __init__(
        self,
        machine: Machine,
        peers: Peers,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
        period_seconds: float = TICK_SECONDS,
        after: Callable[[float], None] = lambda now_seconds: None,
    ) -> None:
        self.machine = machine
        self.peers = peers
        self._clock = clock
        self._period = period_seconds
        self._after = after
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()
        self.error: str | None = None

    def start(self) -> None:
        """Tick until `stop`."""
        self._thread = threading.Thread(target=self._run, name=f"ticks of {self.machine.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the ticking and the sending."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        self.peers.stop()

    def tick(self, now_seconds: float) -> None:
        """One turn: send what is due, then what `after` does (the journal)."""
        with self._turn:
            for message in self.machine.tick(now_seconds):
                self.peers.send(message)
            self._after(now_seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                self.tick(self._clock())
                self.error = None
            except Exception as error:  # the thread must live; what went wrong is in the status
                self.error = f"{type(error).__name__}: {error}"


def peer_routes(
    machine: Machine,
    *,
    status: Callable[[], dict[str, object]],
    on_mode: Callable[[str], None] = lambda mode: None,
    clock: Callable[[], float] = PROCESS_CLOCK.now,
) -> list[BaseRoute]:
    """`POST /v1/table`, `/v1/plan`, `/v1/statistics`, `/v1/mode` and `GET /v1/status`."""

    async def take(request: Request) -> Response:
        body = await request.body()
        answer = await run_in_threadpool(_take, body, request.url.path, request.scope.get("state", {}))
        return Response(b"" if answer is None else encode(answer), media_type="application/octet-stream")

    def _take(body: bytes, path: str, state: Mapping[str, Any]) -> AnyMessage | None:
        message = decode(body, network=machine.network, receiver=machine.name)
        check_speaker(state, OPERATOR if isinstance(message, Mode) else message.sender)
        if message.path != path or message.sender == machine.name:
            raise RefusedError("unknown", f"a {message.kind} message does not belong to {path}")
        if isinstance(message, Mode):
            on_mode(message.mode)
            return Noted(network=machine.network, sender=machine.name, receiver=message.sender)
        return machine.hear(message, clock())

    async def tell(request: Request) -> Response:
        return JSONResponse(status())

    posts = [Route(path, take, methods=["POST"]) for path in ("/v1/table", "/v1/plan", "/v1/statistics", "/v1/mode")]
    return [*posts, Route("/v1/status", tell, methods=["GET"])]
