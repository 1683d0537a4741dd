"""A node's own part of its HTTP API: what it does now, and its mode. The control plane adds the routes of its peers."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from floodway.agent.wire.refusals import RefusedError


class Answering(Protocol):
    """What the routes need of a node."""

    def status(self) -> dict[str, Any]:
        """The latest figures."""

    def set_mode(self, mode: str) -> None:
        """Switch the mode."""


class ModeWish(BaseModel):
    """The body of `POST /v1/node/mode`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    mode: Literal["enforce", "observe", "off"]


def node_routes(node: Answering) -> list[BaseRoute]:
    """`GET /v1/node` and `POST /v1/node/mode`."""

    async def status(request: Request) -> JSONResponse:
        return JSONResponse(node.status())

    async def mode(request: Request) -> JSONResponse:
        try:
            wish = ModeWish.model_validate_json(await request.body())
        except ValidationError as error:
            raise RefusedError("malformed", f"a mode was expected: {error.errors()[0]['msg']}") from None
        node.set_mode(wish.mode)
        return JSONResponse({"mode": wish.mode})

    return [Route("/v1/node", status, methods=["GET"]), Route("/v1/node/mode", mode, methods=["POST"])]
