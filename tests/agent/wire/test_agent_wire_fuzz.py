"""Bad messages by the thousand against the guard, the routes and the machines: refused, counted, without a trace.

Two kinds. Strangers send anything, whole messages included, but have no key. Peers have the key, but what they send is
broken: bytes of the line changed (and no message any more) or bytes of the table.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from starlette.types import Message, Scope

from floodway.agent.planes.dfit.own import UNMEASURED
from floodway.agent.planes.peers import Peers
from floodway.agent.planes.plane import Plane, make_control_plane, make_coordinator
from floodway.agent.wire.client import Client, Deadline
from floodway.agent.wire.guard import Guard
from floodway.agent.wire.messages import AnyMessage, Keeps, Mode, NodeStatistics, PlanUpload, TablePush, decode, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.server import guarded
from floodway.agent.wire.signing import (
    DIGEST_HEADER,
    EPOCH_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Security,
    sign_answer,
    signed_headers,
)
from tests.oracles.plan_checks import example

KEY = b"0123456789abcdef0123456789abcdef"
NETWORK = example("figure1")
NOW = 1_000_000.0
MAX_BYTES = 200_000
PATHS = ("/v1/table", "/v1/plan", "/v1/statistics", "/v1/mode", "/v1/status", "/", "/v1/node", "/v2/table", "/..//v1")
Item = TypeVar("Item")
SPECIAL = ("null", "-1", "1e999", "NaN", "2", "[]", "{}", '""', "true", '"\\ud800"', "9" * 30, "[" * 50)


@dataclass
class Target:
    """One agent behind its guard, what it may honestly be sent, and a look at all that a message could change."""

    app: Guard
    refused: Counter[str]
    honest: list[AnyMessage]
    looks: Callable[[], tuple[object, ...]]
    name: str
    epoch: str = ""


def targets(root: Path) -> list[Target]:
    fit = make_control_plane("dfit", NETWORK, "A", Security(), {}, root / "fit")
    post = make_control_plane("coordinator", NETWORK, "A", Security(), {}, root / "post")
    coordinator_plane = make_coordinator(NETWORK, Security(), {}, root / "coordinator")
    child = make_control_plane("dfit", NETWORK, "B", Security(), {}, root / "child")
    who = {"network": "figure1", "receiver": "A"}
    mode = Mode.model_validate({**who, "sender": "B", "mode": "off"})
    keeps = Keeps.model_validate({**who, "sender": "B", "number": 9, "keeps": {"s1": 0.0}, "late": {"q1": 0.5}})
    child.observe_results({"q1": 9.0}, 1.0, 2, NOW)
    (push,) = child.agent.tick(NOW)
    post.agent.observe({"s1": 1.0, "s2": 1.0}, UNMEASURED, NOW)
    (report,) = post.agent.tick(NOW)
    coordinator = coordinator_plane.agent
    coordinator.hear(report, NOW)
    orders = [message for message in coordinator.tick(NOW) if message.receiver == "A"]
    assert (
        isinstance(push, TablePush)
        and push.late
        and isinstance(report, NodeStatistics)
        and isinstance(orders[0], PlanUpload)
    )
    later = report.model_copy(update={"number": report.number + 1})
    return [
        _target(fit, [push, push.model_copy(update={"form": "beat", "table": b""}), keeps, mode], "A"),
        _target(post, [*orders, mode], "A"),
        _target(coordinator_plane, [later], "coordinator"),
    ]


def _target(plane: Plane[Any], honest: list[AnyMessage], name: str) -> Target:
    refused: Counter[str] = Counter()
    modes: list[str] = []
    plane.keep_mode = modes.append
    app = guarded(plane.routes(), Security(KEY), max_bytes=MAX_BYTES, clock=lambda: NOW, refused=refused)

    def looks() -> tuple[object, ...]:
        return plane.agent.state, modes[-1] if modes else None, plane.agent.lateness

    return Target(app, refused, honest, looks, name)


class Fuzzer:
    """Draws bad requests: method, path, headers, body."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    def stranger(self, target: Target) -> tuple[str, str, dict[str, str], bytes]:
        """Anything, unsigned or signed wrongly, too late, or too large."""
        message = self._one(target.honest)
        body = encode(message)
        draw = int(self.rng.integers(6))
        method, path = "POST", message.path
        if draw == 0:
            return method, path, {}, body
        if draw == 1:
            method, path = self._one(["GET", "POST", "PUT", "DELETE", "BREW"]), self._one(list(PATHS))
            return method, path, self._headers(method, path, body), self._garbage()
        if draw == 2:
            headers = signed_headers(KEY, method, path, body, target.epoch)
            broken = self._one([EPOCH_HEADER, TIME_HEADER, NONCE_HEADER, DIGEST_HEADER, SIGNATURE_HEADER])
            return method, path, {**headers, broken: self._text()}, body
        if draw == 3:
            seconds = self._one([-1e9, -31, 31, 1e9])
            epoch, seconds = self._one([(target.epoch, seconds), ("0" * 32, 0.0), (self._text(), seconds)])
            return method, path, signed_headers(KEY, method, path, body, epoch or "0", seconds), body
        if draw == 4:
            large = body + bytes(MAX_BYTES)
            return method, path, signed_headers(KEY, method, path, large, target.epoch), large
        return method, path, signed_headers(KEY, method, path, body, target.epoch), self.mutated(body)

    def peer(self, target: Target) -> tuple[str, str, dict[str, str], bytes]:
        """Rightly signed, but broken; or, now and then, what was sent before."""
        if self.seen and self.rng.random() < 0.1:
            return self._one(self.seen)
        message = self._one(target.honest)
        path = message.path if self.rng.random() < 0.9 else self._one(list(PATHS))
        body = self._broken(message, target.name)
        request = ("POST", path, signed_headers(KEY, "POST", path, body, target.epoch), body)
        if len(self.seen) < 200:
            self.seen.append(request)
        return request

    def mutated(self, data: bytes) -> bytes:
        """A few bytes changed, cut out, doubled or put in."""
        found = bytearray(data)
        for _ in range(int(self.rng.integers(1, 6))):
            at = int(self.rng.integers(len(found) + 1))
            draw = int(self.rng.integers(5))
            if draw == 0 and at < len(found):
                found[at] ^= 1 << int(self.rng.integers(8))
            elif draw == 1:
                del found[at : at + int(self.rng.integers(1, 40))]
            elif draw == 2:
                found[at:at] = self.rng.bytes(int(self.rng.integers(1, 20)))
            elif draw == 3:
                found[at:at] = found[at : at + int(self.rng.integers(1, 40))]
            else:
                found[at:at] = self._one(list(SPECIAL)).encode()
        return bytes(found) if found != data else data + b"!"

    def _broken(self, message: AnyMessage, receiver: str) -> bytes:
        line, cut, table = encode(message).partition(b"\n")
        if table and self.rng.random() < 0.3:
            return line + cut + self.mutated(table)
        while True:
            body = (self._otherwise(line) if self.rng.random() < 0.5 else self.mutated(line)) + cut + table
            try:
                decode(body, network=NETWORK.name, receiver=receiver)
            except RefusedError:
                return body

    def _otherwise(self, line: bytes) -> bytes:
        """The object with one field of another kind, missing, or too many."""
        fields = json.loads(line)
        name = self._one(list(fields))
        draw = int(self.rng.integers(3))
        if draw == 0:
            del fields[name]
        elif draw == 1:
            fields[self._text()[:20]] = fields.pop(name)
        text = json.dumps(fields).encode()
        if draw == 2:
            return text.replace(json.dumps(fields[name]).encode(), self._one(list(SPECIAL)).encode(), 1)
        return text

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        signed = signed_headers(self.rng.bytes(32), method, path, body, "0" * 32)
        return signed if self.rng.random() < 0.5 else {}

    def _garbage(self) -> bytes:
        return self.rng.bytes(int(self.rng.integers(0, 300)))

    def _text(self) -> str:
        return self.rng.bytes(int(self.rng.integers(0, 60))).decode("latin-1").replace("\n", "")

    def _one(self, items: list[Item]) -> Item:
        return items[int(self.rng.integers(len(items)))]


async def asked(app: Guard, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
    """The status of what the guard answers."""
    return (await answered(app, method, path, headers, body))[0]


async def answered(app: Guard, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 9),
        "server": ("127.0.0.1", 80),
    }
    statuses: list[int] = []
    bodies: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            bodies.append(message.get("body", b""))

    await app(scope, receive, send)
    (status,) = statuses
    return status, b"".join(bodies)


async def campaign(root: Path, count: int, seed: int) -> Counter[str]:
    """Send `count` bad messages; all that was refused, by reason."""
    every = targets(root)
    for target in every:
        _, told = await answered(target.app, "GET", "/", signed_headers(KEY, "GET", "/", b""), b"")
        target.epoch = json.loads(told)["epoch"]
    fuzzer = Fuzzer(np.random.default_rng(seed))
    before = [target.looks() for target in every]
    for number in range(count):
        target = every[number % len(every)]
        draw = fuzzer.stranger if fuzzer.rng.random() < 0.5 else fuzzer.peer
        request = draw(target)
        status = await asked(target.app, *request)
        assert 400 <= status < 500, (number, status, request)
        now = target.looks()
        same = all(one is other for one, other in zip(before[number % len(every)], now, strict=True))
        assert same, (number, request)
    refused = sum((target.refused for target in every), Counter[str]())
    assert refused.total() == count
    # The same agents still take what is honest.
    for target in every:
        body = encode(target.honest[0])
        path = target.honest[0].path
        assert await asked(target.app, "POST", path, signed_headers(KEY, "POST", path, body, target.epoch), body) == 200
    return refused


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_bad_messages_change_no_state(count: int, tmp_path: Path) -> None:
    refused = asyncio.run(campaign(tmp_path, count, seed=count))
    print(dict(refused))
    wanted = {"unsigned", "bad-signature", "stale", "replayed", "oversized", "malformed", "version", "unknown"}
    assert wanted <= set(refused) and "failed" not in refused


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_bad_answers_change_no_state(count: int, tmp_path: Path) -> None:
    """A child hears answers whose signature is of another request, another status, other bytes, or of nobody."""
    child = make_control_plane("dfit", NETWORK, "B", Security(), {}, tmp_path)
    parent = make_control_plane("dfit", NETWORK, "A", Security(), {}, tmp_path)
    (push,) = child.agent.tick(NOW)
    answer = parent.agent.hear(push, NOW)
    assert answer is not None
    honest = encode(answer)
    fuzzer = Fuzzer(np.random.default_rng(count))
    before = child.agent.state
    wire = FuzzedWire(fuzzer, honest)
    peers = Peers(child.agent, {"A": "http://127.0.0.1:1"}, Security(KEY), clock=lambda: NOW)
    for number in range(count):
        peers.deliver(wire, push)
        assert child.agent.state is before, (number, wire.last)
    assert peers.traffic.counts == {} and peers.traffic.failures.total() == count
    assert set(peers.traffic.failures) == {"unsigned-answer", "bad-answer"}
    wire.honestly = True
    peers.deliver(wire, push)
    assert peers.traffic.counts["messages"] == 1
    assert child.agent.status(NOW)["acknowledged"] is True


class FuzzedWire(Client):
    """A client whose connection brings back an answer that somebody else has meddled with."""

    def __init__(self, fuzzer: Fuzzer, honest: bytes) -> None:
        super().__init__("http://127.0.0.1:1", Security(KEY), clock=lambda: NOW)
        self._fuzzer, self._honest = fuzzer, honest
        self.honestly = False
        self.last: tuple[int, bytes, str | None] = (0, b"", None)

    def exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str], deadline: Deadline | None = None
    ) -> tuple[int, bytes, str | None]:
        nonce, rng = headers[NONCE_HEADER], self._fuzzer.rng
        good = sign_answer(KEY, 200, nonce, self._honest)
        draw = -1 if self.honestly else int(rng.integers(6))
        self.last = {
            -1: (200, self._honest, good),
            0: (200, self._honest, None),
            1: (200, self._fuzzer.mutated(self._honest), good),
            2: (int(rng.integers(201, 600)), self._honest, good),
            3: (200, self._honest, sign_answer(KEY, 200, "0" * 32, self._honest)),
            4: (200, self._honest, sign_answer(rng.bytes(32), 200, nonce, self._honest)),
            5: (200, self._honest, rng.bytes(32).decode("latin-1")),
        }[draw]
        return self.last
