"""Server and client over real sockets: what is let in, refused and counted; plain, signed and with certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from floodway.agent.planes.plane import make_control_plane
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import AnyMessage, Mode, PlanUpload, encode
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.server import HttpServer, ServerError
from floodway.agent.wire.signing import (
    NONCE_HEADER,
    SIGNATURE_HEADER,
    Security,
    answer_fault,
    sign_answer,
    signed_headers,
)
from floodway.dashboard.routes import page_server
from floodway.errors import InputError
from floodway.job.places import ShedFiles
from tests.agent.wire.certificates import make_authority, make_files
from tests.agent.wire.meeting import signed_for
from tests.dashboard.made_state import MadeJob
from tests.oracles.plan_checks import example
from tests.patience import PATIENCE_SECONDS

KEY = Security(b"0123456789abcdef0123456789abcdef")


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def hello(request: Request) -> Response:
    return JSONResponse({"hello": request.query_params.get("who", "world")})


async def refuse(request: Request) -> Response:
    raise RefusedError("version", "of tomorrow")


async def fail(request: Request) -> Response:
    raise ZeroDivisionError


async def parts(request: Request) -> Response:
    async def two() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    return StreamingResponse(two())


ROUTES = [
    Route("/parts", parts),
    Route("/echo", echo, methods=["POST"]),
    Route("/hello", hello),
    Route("/refuse", refuse),
    Route("/fail", fail),
]


@pytest.fixture
def signed() -> Iterator[HttpServer]:
    """On a clock that stands: what was signed for it stays fresh, however long a test takes."""
    with HttpServer(ROUTES, security=KEY, max_bytes=1000, clock=lambda: 5000.0) as server:
        yield server


def asked(server: HttpServer, path: str, headers: dict[str, str], *, method: str = "GET", body: bytes = b"") -> int:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, body or None, headers)
        return connection.getresponse().status
    finally:
        connection.close()


class Liar:
    """Answers every request with what it is given, or with what it makes of the request's headers."""

    def __init__(self, answer: Callable[[Message[str, str]], tuple[int, dict[str, str], bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status, headers, body = answer(self.headers)
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        for method in ("GET", "POST"):
            setattr(Handler, f"do_{method}", Handler.respond)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def answers_without_certificate(server: HttpServer, ca: Path) -> bool:
    context = ssl.create_default_context(cafile=str(ca))
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    try:
        with socket.create_connection(address) as raw, context.wrap_socket(raw, server_hostname=address[0]) as wrapped:
            wrapped.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
            return bool(wrapped.recv(100))
    except (ssl.SSLError, ConnectionError):
        return False


def test_there_and_back_without_security_on_loopback() -> None:
    with HttpServer(ROUTES) as server:
        client = Client(server.url)
        assert server.url.startswith("http://127.0.0.1:")
        assert client.get_json("/hello?who=you") == {"hello": "you"}
        assert client.post_bytes("/echo", b"\0\1" * 100_000) == b"\0\1" * 100_000
        assert client.post_json("/echo", {"a": [1.5, None]}) == {"a": [1.5, None]}
        assert not server.refused
    with pytest.raises(PeerError, match="does not answer") as error:
        client.get_json("/hello")
    assert error.value.unreachable


def test_there_and_back_signed(signed: HttpServer) -> None:
    client = Client(signed.url, KEY)
    assert client.get_json("/hello?who=you") == {"hello": "you"}
    assert client.post_json("/echo", [1]) == [1]
    assert not signed.refused


def test_what_is_not_signed_well_is_refused_and_counted(signed: HttpServer) -> None:
    key = KEY.key or b""
    good = signed_for(signed.url, key, "GET", "/hello", b"")
    assert asked(signed, "/hello", {}) == 401
    assert asked(signed, "/hello?who=you", good) == 401
    assert asked(signed, "/hello", signed_for(signed.url, key, "GET", "/hello", b"", later=-3600)) == 401
    assert asked(signed, "/hello", signed_headers(key, "GET", "/hello", b"", "0" * 32, 1.0)) == 401
    assert asked(signed, "/hello", good) == 200
    assert asked(signed, "/hello", good) == 409
    assert signed.refused == {"unsigned": 1, "bad-signature": 1, "stale": 2, "replayed": 1}


def answered(server: HttpServer, path: str, headers: dict[str, str]) -> tuple[int, str | None, bytes]:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, None, headers)
        response = connection.getresponse()
        return response.status, response.getheader(SIGNATURE_HEADER), response.read()
    finally:
        connection.close()


def test_answers_to_signed_requests_are_signed_and_no_others(signed: HttpServer) -> None:
    key = KEY.key or b""
    for path, age, wanted in (("/hello", 0, 200), ("/refuse", 0, 400), ("/nowhere", 0, 404), ("/hello", 3600, 401)):
        headers = signed_for(signed.url, key, "GET", path, b"", later=-age)
        status, signature, body = answered(signed, path, headers)
        assert status == wanted
        assert answer_fault(key, status, headers[NONCE_HEADER], body, signature) is None
    # A stranger gets nothing signed, whatever nonce it picks.
    assert answered(signed, "/hello", {})[:2] == (401, None)
    headers = signed_for(signed.url, key, "GET", "/hello", b"")
    assert answered(signed, "/refuse", headers)[:2] == (401, None)


def test_an_answer_that_comes_in_parts_is_passed_on_unsigned(signed: HttpServer) -> None:
    headers = signed_for(signed.url, KEY.key or b"", "GET", "/parts", b"")
    assert answered(signed, "/parts", headers) == (200, None, b"one two")


def test_answers_of_others_count_as_none() -> None:
    recorded: dict[str, str] = {}

    def replayed(headers: Message[str, str]) -> tuple[int, dict[str, str], bytes]:
        recorded.setdefault("signature", sign_answer(KEY.key or b"", 200, headers[NONCE_HEADER], b"{}"))
        return 200, {SIGNATURE_HEADER: recorded["signature"]}, b"{}"

    def refused(headers: Message[str, str]) -> tuple[int, dict[str, str], bytes]:
        return 422, {}, b'{"refused": "contract", "message": "we are done"}'

    def locked_out(headers: Message[str, str]) -> tuple[int, dict[str, str], bytes]:
        return 401, {}, b'{"refused": "bad-signature", "message": "another key"}'

    with Liar(lambda headers: (200, {}, b"{}")) as liar, pytest.raises(PeerError, match="not signed") as error:
        Client(liar.url, KEY).get_json("/hello")
    assert error.value.reason == "unsigned-answer" and error.value.unreachable
    with Liar(replayed) as liar:
        client = Client(liar.url, KEY)
        assert client.get_json("/hello") == {}
        with pytest.raises(PeerError, match="does not fit") as error:
            client.get_json("/hello")
        assert error.value.reason == "bad-answer" and error.value.unreachable
    # A forged refusal ends no contract: it is as if nobody had answered, and its words are told.
    with Liar(refused) as liar, pytest.raises(PeerError, match="we are done") as error:
        Client(liar.url, KEY).post_json("/echo", [1])
    assert error.value.reason == "unsigned-answer" and error.value.unreachable
    # One with another key cannot sign: what it says is told as its reason, and still proves nothing.
    with Liar(locked_out) as liar, pytest.raises(PeerError, match="another key") as error:
        Client(liar.url, KEY).post_json("/echo", [1])
    assert error.value.reason == "bad-signature" and error.value.unreachable
    with Liar(refused) as liar, pytest.raises(PeerError) as error:
        Client(liar.url).post_json("/echo", [1])
    assert error.value.reason == "contract" and not error.value.unreachable


def test_sizes_paths_methods_and_the_handlers_own_refusals_are_counted(signed: HttpServer) -> None:
    client = Client(signed.url, KEY)
    reasons = []
    for path in ("/nowhere", "/echo", "/refuse", "/fail"):
        with pytest.raises(PeerError) as error:
            client.get_json(path)
        reasons.append(error.value.reason)
    with pytest.raises(PeerError, match="larger than 1000 bytes"):
        client.post_bytes("/echo", bytes(1001))
    assert reasons == ["unknown", "unknown", "version", "failed"]
    assert signed.refused == {"unknown": 2, "version": 1, "failed": 1, "oversized": 1}
    assert len(client.post_bytes("/echo", bytes(1000))) == 1000


def test_a_body_that_hides_its_length_is_bounded_too(signed: HttpServer) -> None:
    connection = HTTPConnection(signed.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    headers = signed_for(signed.url, KEY.key or b"", "POST", "/echo", bytes(1200))
    connection.request("POST", "/echo", iter([bytes(600), bytes(600)]), headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert signed.refused == {"oversized": 1}


def test_an_answer_is_bounded() -> None:
    with HttpServer(ROUTES) as server, pytest.raises(PeerError, match="more than 10 bytes"):
        Client(server.url, max_bytes=10).post_bytes("/echo", bytes(20))


def test_web_pages_of_other_sites_do_not_reach_a_loopback_server() -> None:
    with HttpServer(ROUTES) as server:
        host = server.url.removeprefix("http://")
        assert asked(server, "/hello", {"origin": "https://evil.example"}) == 403
        assert asked(server, "/hello", {"host": "evil.example"}) == 403
        assert asked(server, "/hello", {"origin": server.url, "host": host}) == 200
        assert asked(server, "/hello", {"host": f"localhost:{host.rsplit(':')[-1]}"}) == 200
        assert server.refused == {"foreign": 2}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_other_addresses_need_authentication(host: str) -> None:
    with pytest.raises(InputError, match="nothing authenticates"):
        HttpServer(ROUTES, host=host)
    assert HttpServer(ROUTES, host=host, security=KEY).refused == {}


def test_a_taken_port_is_named() -> None:
    with HttpServer(ROUTES) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with pytest.raises(ServerError, match=f"127.0.0.1:{port}"):
            HttpServer(ROUTES, port=port).start()
    server.stop()


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x/path", "http://x:99999"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError):
        Client(url)


def test_something_else_than_http_is_a_peer_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PeerError, match="does not answer"):
            Client(f"http://127.0.0.1:{port}", timeout_seconds=0.2).get_json("/hello")


def test_mutual_tls_lets_in_who_has_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    server_files, client_files = make_files(tmp_path, "a", authority), make_files(tmp_path, "b", authority)
    stranger = make_files(tmp_path, "stranger", make_authority(tmp_path, "other"))
    with HttpServer(ROUTES, security=Security(tls=server_files)) as server:
        assert server.url.startswith("https://")
        assert Client(server.url, Security(tls=client_files)).get_json("/hello") == {"hello": "world"}
        # A stranger who even trusts our authority has no certificate of it.
        for files in (stranger, replace(stranger, ca=authority[0])):
            with pytest.raises(PeerError) as error:
                Client(server.url, Security(tls=files)).get_json("/hello")
            assert error.value.unreachable
        assert not answers_without_certificate(server, authority[0])
        with pytest.raises(InputError, match="https"):
            Client(server.url.replace("https", "http"), Security(tls=client_files))


def refused_as(client: Client, message: AnyMessage) -> str:
    try:
        client.post_bytes(message.path, encode(message))
    except PeerError as error:
        return error.reason
    return "taken"


def test_a_certificate_says_who_speaks(tmp_path: Path) -> None:
    """Any certificate of the authority reads; only the coordinator's orders, and only an operator's sets the mode."""
    authority = make_authority(tmp_path)
    names = ("A", "B", "coordinator", "operator")
    tls = {name: Security(tls=make_files(tmp_path, name, authority)) for name in names}
    tls["nobody"] = Security(tls=make_files(tmp_path, "nobody", authority, subject="/O=us"))
    plane = make_control_plane("coordinator", example("figure1"), "A", Security(), {}, tmp_path)
    modes: list[str] = []
    plane.keep_mode = modes.append
    order = PlanUpload(network="figure1", receiver="A", sender="coordinator", number=1, generation=1, rows=())
    mode = Mode(network="figure1", receiver="A", sender="page", mode="off")
    with HttpServer(plane.routes(), security=tls["A"]) as server:
        client = {name: Client(server.url, security, peer="A") for name, security in tls.items() if name != "A"}
        for name in ("B", "operator", "nobody"):
            assert refused_as(client[name], order) == "forged"
            assert client[name].get_json("/v1/status")["generation"] is None
        for name in ("B", "coordinator", "nobody"):
            assert refused_as(client[name], mode) == "forged"
        assert server.refused == {"forged": 6} and modes == []
        assert refused_as(client["coordinator"], order) == "taken" and plane.agent.state.generation == 1
        assert refused_as(client["operator"], mode) == "taken" and modes == ["off"]
        # Nor is another server taken for A.
        with pytest.raises(PeerError, match="is of A, not B"):
            Client(server.url, tls["coordinator"], peer="B").get_json("/v1/status")


def test_the_pages_switch_is_an_operators_too(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    job = MadeJob(tmp_path / "demo", 1_000)
    job.start()
    job.run(1)
    page, node, operator = (Security(tls=make_files(tmp_path, name, authority)) for name in ("page", "A", "operator"))
    wish = {"job": "demo", "mode": "off", "confirmed": True}
    with page_server([job.root], security=page) as server:
        with pytest.raises(PeerError) as error:
            Client(server.url, node).post_json("/v1/page/mode", wish)
        assert error.value.reason == "forged" and ShedFiles(job.root).read_mode() is None
        Client(server.url, operator).post_json("/v1/page/mode", wish)
        assert ShedFiles(job.root).read_mode() == "off"
