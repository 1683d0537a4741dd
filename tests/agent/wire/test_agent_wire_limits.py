"""Before anybody has proved who they are: connections, heads and bodies are bounded, and a known peer gets through."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.connections import ConnectionRoom
from floodway.agent.wire.guard import BODIES_BYTES
from floodway.agent.wire.server import MAX_BYTES, HttpServer
from floodway.agent.wire.signing import Security
from tests.agent.wire.certificates import make_authority, make_files
from tests.patience import PATIENCE_SECONDS, wait_until

KEY = Security(b"0123456789abcdef0123456789abcdef")


async def echo(request: Request) -> Response:
    return JSONResponse({"bytes": len(await request.body())})


ROUTES = [Route("/echo", echo, methods=["POST", "GET"])]


@pytest.fixture
def patient() -> Iterator[HttpServer]:
    """A server that never closes anybody for being slow: only room decides."""
    with HttpServer(ROUTES, security=KEY, head_seconds=600.0) as server:
        yield server


def connected(server: HttpServer) -> socket.socket:
    host, port = server.url.partition("://")[2].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has hung up."""
    sock.settimeout(0.0)
    with suppress(BlockingIOError):
        try:
            return sock.recv(1) == b""
        except ConnectionError:
            return True
    return False


def wait_until_closed(sock: socket.socket) -> None:
    sock.settimeout(PATIENCE_SECONDS)
    with suppress(ConnectionError):
        while sock.recv(65_536):
            pass


@pytest.mark.parametrize("said", [b"", b"GET /echo HTTP/1.1\r\nhost: x\r\n", b"POST /echo HTTP/1.1\r\ncontent-le"])
def test_half_open_connections_keep_no_peer_out(patient: HttpServer, said: bytes) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(patient)) for _ in range(300)]
        for one in held:
            with suppress(ConnectionError):
                one.sendall(said)
        client = Client(patient.url, KEY, timeout_seconds=PATIENCE_SECONDS)
        for _ in range(5):
            assert client.post_bytes("/echo", b"abc") == b'{"bytes":3}'
        wait_until_closed(held[0])
        assert sum(not is_closed(one) for one in held) <= 256


def test_half_open_handshakes_keep_no_peer_out(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    files = {name: make_files(tmp_path, name, authority) for name in ("server", "client")}
    security = Security(tls=files["server"])
    with HttpServer(ROUTES, security=security, head_seconds=600.0) as server, ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connected(server))
        assert Client(server.url, Security(tls=files["client"]), PATIENCE_SECONDS).get_json("/echo") == {"bytes": 0}


@pytest.mark.parametrize("said", [b"", b"GET /echo HTTP/1.1\r\n"])
def test_who_does_not_finish_a_head_is_closed(said: bytes) -> None:
    with HttpServer(ROUTES, security=KEY, head_seconds=0.2) as server, connected(server) as slow:
        slow.sendall(said)
        wait_until_closed(slow)


def test_who_trickles_a_head_or_a_refused_body_is_closed() -> None:
    def trickle(sock: socket.socket, part: bytes) -> None:
        with suppress(ConnectionError):
            while True:
                sock.sendall(part)
                time.sleep(0.02)

    with HttpServer(ROUTES, security=KEY, head_seconds=0.3) as server:
        beginnings = {
            b"GET /echo HTTP/1.1\r\n": b"x-more: 1\r\n",
            b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n": b"x",
        }
        for beginning, part in beginnings.items():
            with connected(server) as slow:
                slow.sendall(beginning)
                thread = threading.Thread(target=trickle, args=(slow, part))
                thread.start()
                wait_until_closed(slow)
                thread.join()


def test_bodies_of_strangers_are_not_kept() -> None:
    with HttpServer(ROUTES, security=KEY) as server, ExitStack() as stack:
        head = f"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_BYTES}\r\n\r\n".encode()
        tracemalloc.start()
        try:
            for _ in range(20):
                sock = stack.enter_context(connected(server))
                sock.sendall(head + bytes(200_000))
                sock.settimeout(PATIENCE_SECONDS)
                assert sock.recv(100).startswith(b"HTTP/1.1 401")
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 8 * 2**20, "twenty bodies of 200 kB, refused, and 160 MB promised"
        assert server.refused == {"unsigned": 20}


def test_bodies_that_are_read_at_the_same_time_share_a_room() -> None:
    """Without a key, on loopback: nobody proves anything, and the memory is bounded all the same."""
    count = BODIES_BYTES // MAX_BYTES + 4
    with HttpServer(ROUTES) as server, ExitStack() as stack:
        head = f"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {MAX_BYTES}\r\n\r\n".encode()
        for _ in range(count):
            sock = stack.enter_context(connected(server))
            with suppress(ConnectionError):
                sock.sendall(head + bytes(MAX_BYTES - 1))
        wait_until(lambda: server.refused, "a refusal")
        assert set(server.refused) <= {"busy", "slow"} and "busy" in server.refused


def test_the_room_of_bodies_is_given_back() -> None:
    with HttpServer(ROUTES, max_bytes=2**20) as server:
        client = Client(server.url, timeout_seconds=PATIENCE_SECONDS)
        for _ in range(2 * BODIES_BYTES // 2**20):
            client.post_bytes("/echo", bytes(2**20))
        assert not server.refused


def test_an_exchange_has_one_deadline() -> None:
    """A peer that sends a byte now and then is late all the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        stopped = threading.Event()

        def dribble() -> None:
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # nobody came: the client was held up until its time was over
            with sock, suppress(ConnectionError):
                sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while not stopped.wait(0.05):
                    sock.sendall(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            with pytest.raises(PeerError, match=r"no whole answer within 0.5 s|timed out"):
                Client(f"http://127.0.0.1:{port}", timeout_seconds=0.5).get_json("/")
        finally:
            stopped.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_name_that_nobody_resolves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver whose servers are silent takes its own time: ten seconds and more."""
    over, resolve = threading.Event(), socket.getaddrinfo

    def slow(host: str, *rest: Any, **more: Any) -> Any:
        if more.get("flags", 0) & socket.AI_NUMERICHOST == 0:
            over.wait(PATIENCE_SECONDS)
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with pytest.raises(PeerError, match="is not resolved in time"):
            Client("http://peer.example:8700", timeout_seconds=0.2).get_json("/")
        assert not over.is_set()
    finally:
        over.set()


@pytest.mark.parametrize(
    "said",
    [
        b"GET /" + b"a" * 100_000,  # a page of another site can have a browser ask for that
        b"GET /echo HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: many\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_counted_and_cannot_be_framed(said: bytes) -> None:
    with HttpServer(ROUTES) as server, connected(server) as sock:
        sock.sendall(said)
        told = b"".join(iter(lambda: sock.recv(65_536), b""))
        head, _, body = told.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ") and b"x-frame-options: DENY" in head
        assert b"frame-ancestors 'none'" in head
        assert b"cross-origin-resource-policy: same-origin" in head and b'"refused":"malformed"' in body
        wait_until(lambda: server.refused["malformed"] == 1)


addresses = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"])
events = st.lists(st.tuples(st.sampled_from(["open", "open", "open", "prove", "close"]), addresses), max_size=200)


@given(events, st.integers(2, 12), st.integers(1, 6), st.integers(0, 4))
def test_room_is_never_exceeded_and_the_proven_stay(
    events: list[tuple[str, str]], most: int, per_address: int, reserve: int
) -> None:
    room = ConnectionRoom(most=most, per_address=per_address, reserve=min(reserve, most - 1))
    open_now: dict[int, str] = {}
    proven: set[int] = set()
    for number, (kind, address) in enumerate(events):
        mine = [one for one, its in open_now.items() if its == address]
        if kind == "open":
            closing = room.opened(number, address)
            assert len(closing) <= 1 and not proven & set(closing)
            open_now[number] = address
            for one in closing:
                del open_now[one]
        elif kind == "prove" and mine:
            room.proven(mine[-1])
            proven.add(mine[-1])
        elif kind == "close" and mine:
            room.closed(mine[0])
            proven.discard(mine[0])
            del open_now[mine[0]]
        assert len(room) == len(open_now) <= most
        for busy in set(open_now.values()):
            pending = [other for other, its in open_now.items() if its == busy and other not in proven]
            assert len(pending) <= per_address


def test_a_known_address_finds_room_while_strangers_have_taken_theirs() -> None:
    room = ConnectionRoom(most=10, per_address=10, reserve=3)
    room.opened(0, "peer")
    room.proven(0)
    room.closed(0)
    for number in range(1, 50):
        room.opened(number, f"stranger-{number}")
    assert len(room) == 7
    assert room.opened(100, "peer") == [] and len(room) == 8
