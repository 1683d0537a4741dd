"""A server for the page, ready to start: what `floodway dashboard`, `floodway run --page` and the demo put up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from floodway.agent.watch.metrics import Watched
from floodway.agent.wire.browsers import is_loopback
from floodway.agent.wire.server import HttpServer
from floodway.agent.wire.signing import Security
from floodway.dashboard.agents import UrlSource
from floodway.dashboard.board import Board
from floodway.dashboard.routes import OPEN_PATHS, page_routes
from floodway.dashboard.sources import Source, Sources, StateSource


def page_server(
    places: Iterable[Path | str] = (),
    urls: Iterable[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    security: Security | None = None,
    asking: Security | None = None,
) -> HttpServer:
    """The page over the jobs at these places, and agents; beyond this machine only with a key or certificates.

    There, figures and metrics are served to who has the key, the page itself over TLS only. `asking` is what agents are
    asked with, by default the same.
    """
    sources: list[Source] = [StateSource(places)]
    given = list(urls)
    if given:
        sources.append(UrlSource(given, asking or security))
    safe = is_loopback(host) or (security is not None and security.tls is not None)
    routes = page_routes(Sources(sources), files_too=safe)
    return HttpServer(routes, host=host, port=port, security=security, open_paths=OPEN_PATHS)


def watching(places: Iterable[Path | str]) -> Callable[[], list[Watched]]:
    """What the page's `/metrics` would say about the jobs there, whenever it is asked."""
    return Board(StateSource(places)).watched
