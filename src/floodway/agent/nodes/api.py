"""A node's own part of its HTTP API: what it does now. Mode, tables and plans are routes of its control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route


def node_routes(status: Callable[[], dict[str, Any]]) -> list[BaseRoute]:
    """`GET /v1/node`: the node's status, as in its `status.json`."""

    async def answer(request: Request) -> JSONResponse:
        return JSONResponse(status())

    return [Route("/v1/node", answer, methods=["GET"])]
