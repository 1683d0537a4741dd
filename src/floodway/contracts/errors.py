"""The one error of this room: a contract, offer or answer that cannot stand."""

from __future__ import annotations

from floodway.errors import FloodwayError


class ContractError(FloodwayError):
    """A contract that makes no sense, or a message that breaks one; what it would have changed stays as it was."""

    exit_code = 2
