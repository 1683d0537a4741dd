"""A node's own part of its HTTP API: what it does now. Mode, tables and plans are routes of its control plane."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from floodway.job.status.status import Status
from floodway.network.dump import network_to_json
from floodway.network.model import Network


def node_routes(status: Callable[[], Status], network: Network | None = None) -> list[BaseRoute]:
    """`GET /v1/node`: the node's status, as in its `status.json`.

    `GET /v1/network`: the network it is a node of, as a network file, so that a page can draw it.
    """

    def answer(request: Request) -> Response:
        return Response(status().encode(), media_type="application/json")

    def drawn(request: Request) -> JSONResponse:
        return JSONResponse({"network": "" if network is None else network_to_json(network)})

    shown = [] if network is None else [Route("/v1/network", drawn, methods=["GET"])]
    return [Route("/v1/node", answer, methods=["GET"]), *shown]
