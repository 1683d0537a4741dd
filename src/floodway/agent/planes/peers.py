"""The wire of an agent: messages out over HTTP, messages in through routes.

Every peer has a thread and a short queue of its own, so that one that does not answer holds up none of the others.
Nothing is retried here: the machines repeat what was not answered, and a message that finds its queue full makes room
by pushing out the oldest, which is older news.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from floodway.agent.planes.agent import Agent
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.guard import check_speaker
from floodway.agent.wire.messages import OPERATOR, AnyMessage, Mode, Noted, TablePush, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.job.clocks import PROCESS_CLOCK

QUEUE = 8
PAPER_ROW_BYTES = (22, 8)
"""The papers' row of m inputs takes 22·m + 8 bytes (long paper, section 8.2.5)."""


class PeerTraffic:
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

    def to_dict(self) -> dict[str, object]:
        """All counts."""
        with self._lock:
            return {**self.counts, "failed": dict(self.failures)}


class Peers:
    """Sends messages to agents by their names; answers go to `on_answer`."""

    def __init__(
        self,
        agent: Agent[Any],
        urls: Mapping[str, str],
        security: Security,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
        timeout_seconds: float = 2.0,
    ) -> None:
        self.traffic = PeerTraffic()
        self._agent = agent
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
            answer = decode(told, network=self._agent.network, receiver=self._agent.name)
            if answer.sender != message.receiver:
                raise RefusedError("unknown", f"{answer.sender!r} answers for {message.receiver!r}")
            self._agent.hear(answer, self._clock())
        except (PeerError, RefusedError) as error:
            self.traffic.failed(error.reason)


def peer_routes(
    agent: Agent[Any],
    *,
    status: Callable[[], dict[str, object]],
    on_mode: Callable[[str], None],
    clock: Callable[[], float],
) -> list[BaseRoute]:
    """`POST /v1/table`, `/v1/plan`, `/v1/statistics`, `/v1/mode` and `GET /v1/status`."""

    async def take(request: Request) -> Response:
        body = await request.body()
        answer = await run_in_threadpool(_take, body, request.url.path, request.scope.get("state", {}))
        return Response(b"" if answer is None else encode(answer), media_type="application/octet-stream")

    def _take(body: bytes, path: str, state: Mapping[str, Any]) -> AnyMessage | None:
        message = decode(body, network=agent.network, receiver=agent.name)
        check_speaker(state, OPERATOR if isinstance(message, Mode) else message.sender)
        if message.path != path or message.sender == agent.name:
            raise RefusedError("unknown", f"a {message.kind} message does not belong to {path}")
        if isinstance(message, Mode):
            on_mode(message.mode)
            return Noted(network=agent.network, sender=agent.name, receiver=message.sender)
        return agent.hear(message, clock())

    async def tell(request: Request) -> Response:
        return JSONResponse(status())

    posts = [Route(path, take, methods=["POST"]) for path in ("/v1/table", "/v1/plan", "/v1/statistics", "/v1/mode")]
    return [*posts, Route("/v1/status", tell, methods=["GET"])]
