"""A read token opens figures to Prometheus and to a page without a key, and nothing else to anybody."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from floodway.agent.federation.credentials import Credentials
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import READ_PATHS, Security, load_security
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.routes import page_server
from floodway.errors import InputError
from floodway.job.status.status import Status
from tests.dashboard.made_state import MadeJob
from tests.patience import PATIENCE_SECONDS

KEY, TOKEN = b"0123456789abcdef-key", b"0123456789abcdef-token"
BOTH = Security(KEY, token=TOKEN)
pytestmark = pytest.mark.usefixtures("patient_page")


def bearer(token: bytes) -> dict[str, str]:
    return {"authorization": f"Bearer {token.decode()}"}


def test_prometheus_reads_the_metrics_of_a_page_with_a_key_and_nothing_more(tmp_path: Path) -> None:
    job = MadeJob(tmp_path / "demo", 1_000)
    job.start()
    job.run(1)
    with (
        page_server([job.root], security=BOTH) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_SECONDS) as web,
    ):
        read = web.get("/metrics", headers=bearer(TOKEN))
        assert read.status_code == 200 and "floodway_offered_tuples_total" in read.text
        assert web.get("/metrics").status_code == 401
        wrong = web.get("/metrics", headers=bearer(b"another token, long enough"))
        assert wrong.status_code == 401 and "read token" in wrong.json()["message"]
        assert web.get("/v1/page/snapshot", headers=bearer(TOKEN)).status_code == 401
        switch = {"job": "demo", "mode": "off", "confirmed": True}
        assert web.post("/v1/page/mode", json=switch, headers=bearer(TOKEN)).status_code == 401
        assert web.post("/metrics", headers=bearer(TOKEN)).status_code == 401
        assert server.refused["bad-token"] == 1


def test_pair_keys_admit_only_members_and_a_token_lets_a_page_read() -> None:
    """As `--url` of a remote federation: the page has no key with anybody."""

    def status(request: Request) -> Response:
        return Response(Status("A", "participant", "enforce", 2.0).encode(), media_type="application/json")

    security = Credentials("A", Security(token=TOKEN), {"B": b"the key of A and B, long"}).receiving()
    with HttpServer([Route("/v1/status", status)], security=security) as server:
        (reading,) = UrlSource([server.url], BOTH).read()
        assert (reading.name, reading.problem, reading.status and reading.status.time) == ("A", None, 2.0)
        (stranger,) = UrlSource([server.url], Security(KEY)).read()
        assert "signature does not fit" in str(stranger.problem)


def test_an_agent_that_has_no_token_is_asked_with_the_key() -> None:
    def status(request: Request) -> Response:
        return Response(Status("A", "run", "enforce", 2.0).encode(), media_type="application/json")

    with HttpServer([Route("/v1/status", status)], security=Security(KEY)) as server:
        (reading,) = UrlSource([server.url], BOTH).read()
        assert (reading.name, reading.problem) == ("A", None)
        with pytest.raises(PeerError, match="not signed"):
            Client(server.url, Security(token=TOKEN)).get_json("/v1/status")


def test_a_token_is_sent_only_where_it_opens_something() -> None:
    seen: dict[str, str | None] = {}

    async def answer(request: Request) -> JSONResponse:
        seen[f"{request.method} {request.url.path}"] = request.headers.get("authorization")
        return JSONResponse({})

    paths = [*READ_PATHS, "/v1/message"]
    with HttpServer([Route(path, answer, methods=["GET", "POST"]) for path in paths]) as server:
        client = Client(server.url, Security(token=TOKEN))
        for path in paths:
            client.get_json(path)
        client.post_json("/v1/status", {})
    assert [key for key, sent in seen.items() if sent] == [f"GET {path}" for path in READ_PATHS]


def test_tokens_come_from_files_or_the_environment_and_are_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o600)
    assert load_security(None, None, None, None, {}, file).token == TOKEN
    assert load_security(None, None, None, None, {"FLOODWAY_READ_TOKEN_FILE": str(file)}).token == TOKEN
    assert load_security(None, None, None, None, {"FLOODWAY_READ_TOKEN": TOKEN.decode()}).token == TOKEN
    assert TOKEN.decode() not in repr(BOTH)
    with pytest.raises(InputError, match="read token is shorter"):
        Security(token=b"short")
    with pytest.raises(InputError, match="read token is the key"):
        Security(KEY, token=KEY)
    with pytest.raises(InputError, match=r"read token file .* cannot be read"):
        load_security(None, None, None, None, {}, tmp_path / "none")
    with pytest.raises(InputError, match="nothing authenticates"):
        HttpServer([], host="0.0.0.0", security=Security(token=TOKEN))
