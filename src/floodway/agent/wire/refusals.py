"""Why a message was not taken. A refused message is counted by its reason and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from floodway.errors import FloodwayError

REASONS = {
    "unsigned": 401,
    "bad-signature": 401,
    "bad-token": 401,
    "unmet": 401,
    "stale": 401,
    "replayed": 409,
    "forged": 403,
    "foreign": 403,
    "oversized": 413,
    "slow": 408,
    "malformed": 400,
    "version": 400,
    "unknown": 404,
    "busy": 503,
    "failed": 500,
    "contract": 422,
}
"""Every reason with its HTTP status.

`unsigned`: no signature where one is needed. `bad-token`: a read token that is not this agent's.
`unmet`: signed by one who does not know the epoch of this process yet; it is told, and asks again (not counted).
`stale`: its time is outside the window, or it is for a process before this one.
`replayed`: its nonce was seen before. `forged`: it speaks in the name of another than its key or certificate is of.
`foreign`: sent by a web page of another site. `slow`: the
body took too long to arrive. `version`: of a format this side does not speak. `unknown`: a path, method, sender or
receiver that does not exist here. `busy`: more signed messages than the memory of nonces holds, more bodies at once
than there is room for, or an agent that is still starting.
`contract`: between participants of a federation, what breaks the contract or fits no offer.
`failed`: an error on this side.
"""


class RefusedError(FloodwayError):
    """A message that is not taken, with one of `REASONS`; `details` go into the answer."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, str | float] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.details = dict(details or {})

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return REASONS[self.reason]
