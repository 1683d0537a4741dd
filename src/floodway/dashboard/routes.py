"""The page over HTTP: its files, its data once and as a stream of events, the mode switch, and the metrics.

    GET  /, /static/NAME       the page's own files (open: they hold no secret)
    GET  /v1/page/snapshot     everything the page shows, with the recent past
    GET  /v1/page/events       the same without the past, once a second, as server-sent events
    GET  /v1/page/history      ?job=NAME: its whole past in some hundred samples
    GET  /v1/page/picture      ?job=NAME: the network as SVG, figures left blank
    GET  /v1/page/comparison   a picture that the command beside the page draws of its runs, as SVG
    POST /v1/page/mode         {"job", "mode", "confirmed": true}
    GET  /metrics              for Prometheus

Who may ask is decided before any of this, by the guard of `agent/wire`: anybody on loopback; elsewhere only who signs
with the key, which the page does itself once the operator has typed it in. Beyond this machine the page's files are
served over TLS only: over plain HTTP anybody on the way could put another script in the place of the one that takes
the key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from floodway.agent.watch.metrics import Watched, metrics_route
from floodway.agent.wire.guard import check_speaker, is_loopback
from floodway.agent.wire.messages import OPERATOR
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.board import Board
from floodway.dashboard.job_sources import Source, Sources, StateSource
from floodway.errors import FloodwayError
from floodway.json_text import finite

OPEN_PATHS = ("/", "/static/")
UNSAFE = (
    "Floodway does not serve its page over plain HTTP beyond this machine: whoever is on the way could take the key.\n"
    "Give certificates (--cert, --private-key, --ca), or listen on 127.0.0.1 and open a tunnel:\n"
    "    ssh -L 8800:127.0.0.1:8800 THIS_MACHINE\n"
)
EVENT_SECONDS = 1.0
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Nothing from elsewhere, and no script but the page's own files: works cut off from the internet, and stays so.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
# A drawing that another program made has its styles inside, and nothing else.
DRAWN = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


class ModeWish(BaseModel):
    """The body of `POST /v1/page/mode`. `confirmed` is what the page's question was answered with."""

    model_config = ConfigDict(extra="forbid", strict=True)

    job: str
    mode: Literal["enforce", "observe", "off"]
    confirmed: Literal[True]


def page_routes(
    source: Source, *, board: Board | None = None, files_too: bool = True, comparison: Path | None = None
) -> list[BaseRoute]:
    """All routes of the page over this source; without its files, `/` says why there is no page.

    `comparison` is the file of a picture that is shown above the figures once it is there, and again when it changes.
    """
    shown = board or Board(source)

    def seen(*, history: bool) -> dict[str, Any]:
        return {**shown.snapshot(history=history), "comparison": _changed(comparison)}

    async def snapshot(request: Request) -> Response:
        return json_response(await run_in_threadpool(lambda: seen(history=True)))

    async def events(request: Request) -> StreamingResponse:
        stream = _events(lambda: seen(history=False), request)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    def history(request: Request) -> Response:
        name = request.query_params.get("job", "")
        samples = shown.whole(name)
        if samples is None:
            raise RefusedError("unknown", f"no job is called {name!r}")
        return json_response({"job": name, "samples": samples})

    def picture(request: Request) -> Response:
        name = request.query_params.get("job", "")
        drawn = shown.picture(name)
        if drawn is None:
            raise RefusedError("unknown", f"no network is known of job {name!r}")
        return Response(drawn, media_type="image/svg+xml", headers=HEADERS)

    def compared(request: Request) -> Response:
        if comparison is None or _changed(comparison) is None:
            raise RefusedError("unknown", "no runs have been compared")
        return Response(comparison.read_bytes(), media_type="image/svg+xml", headers=DRAWN)

    async def mode(request: Request) -> Response:
        check_speaker(request.scope.get("state", {}), OPERATOR)
        try:
            wish = ModeWish.model_validate_json(await request.body())
        except ValidationError as error:
            message = f"a job, a mode and its confirmation were expected: {error.errors()[0]['msg']}"
            raise RefusedError("malformed", message) from None
        try:
            await run_in_threadpool(shown.set_mode, wish.job, wish.mode)
        except FloodwayError as error:
            raise RefusedError("unknown", error.message, hint=error.hint) from error
        return json_response({"job": wish.job, "mode": wish.mode})

    own = [Route("/", _file, methods=["GET"]), Route("/static/{name}", _file, methods=["GET"])]
    return [
        *(own if files_too else [Route("/", _unsafe, methods=["GET"])]),
        Route("/v1/page/snapshot", snapshot, methods=["GET"]),
        Route("/v1/page/events", events, methods=["GET"]),
        Route("/v1/page/history", history, methods=["GET"]),
        Route("/v1/page/picture", picture, methods=["GET"]),
        Route("/v1/page/comparison", compared, methods=["GET"]),
        Route("/v1/page/mode", mode, methods=["POST"]),
        metrics_route(shown.watched),
    ]


def json_response(body: Any) -> Response:
    """JSON that browsers read: infinities and NaN, which JSON lacks, as null."""
    return Response(to_json(body), media_type="application/json", headers={"Cache-Control": "no-store"})


def to_json(body: Any) -> str:
    """Compact JSON text; what is no number in JSON becomes null."""
    return json.dumps(finite(body), separators=(",", ":"), allow_nan=False)


def _changed(file: Path | None) -> int | None:
    """When a file was last written, in milliseconds of the epoch; None while it is not there."""
    try:
        return None if file is None else file.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None


async def _events(seen: Callable[[], dict[str, Any]], request: Request) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    while not await request.is_disconnected():
        body = await run_in_threadpool(lambda: to_json(seen()))
        yield f"event: snapshot\ndata: {body}\n\n"
        await asyncio.sleep(EVENT_SECONDS)


def _unsafe(request: Request) -> Response:
    return Response(UNSAFE, status_code=403, media_type="text/plain")


def _file(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    place = files("floodway.dashboard").joinpath("static")
    known = {file.name: file for file in place.iterdir()}
    suffix = "." + name.rpartition(".")[2]
    if name not in known or suffix not in TYPES:
        raise RefusedError("unknown", f"the page has no file {name!r}")
    return Response(known[name].read_bytes(), media_type=TYPES[suffix], headers=HEADERS)


def page_server(
    places: Iterable[Path | str] = (),
    urls: Iterable[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    security: Security | None = None,
    asking: Security | None = None,
    comparison: Path | None = None,
) -> HttpServer:
    """The page over the jobs at these places, and agents; beyond this machine only with a key or certificates.

    There, figures and metrics are served to who has the key, the page itself over TLS only. `asking` is what agents are
    asked with, by default the same. `comparison` is as in `page_routes`.
    """
    sources: list[Source] = [StateSource(places)]
    given = list(urls)
    if given:
        sources.append(UrlSource(given, asking or security))
    safe = is_loopback(host) or (security is not None and security.tls is not None)
    routes = page_routes(Sources(sources), files_too=safe, comparison=comparison)
    return HttpServer(routes, host=host, port=port, security=security, open_paths=OPEN_PATHS)


def watching(places: Iterable[Path | str]) -> Callable[[], list[Watched]]:
    """What the page's `/metrics` would say about the jobs there, whenever it is asked."""
    return Board(StateSource(places)).watched
