"""Whose certificate a connection came with: uvicorn's protocol, which notes the name where requests can see it.

The name is the subject's commonName. Host names in the certificate say where a member runs, not who it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CERTIFICATE = "certificate"
"""In a request's state: the name in the certificate of the connection."""


class CertifiedProtocol(H11Protocol):
    """HTTP over TLS, as uvicorn speaks it; every request of a connection carries the name of its certificate."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the name."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFICATE: common_name(transport.get_extra_info("peercert"))}


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject's commonName in what `getpeercert` returns; None without one, or with several.

    >>> common_name({"subject": ((("organizationName", "us"),), (("commonName", "A"),))})
    'A'
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    return names[0] if len(names) == 1 else None
