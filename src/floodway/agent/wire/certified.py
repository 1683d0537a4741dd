"""Whose certificate a connection came with, and in whose name it may speak.

The name is the subject's commonName: a node's, `coordinator`, `operator`, or a member's of a federation. Host names in
the certificate say where it runs, not who it is. Anybody with a certificate of the authority may read; messages are
taken from the one that they name as their sender, and modes from operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodway.agent.wire.refusals import RefusedError

CERTIFICATE = "certificate"
"""In the state of a request over TLS: the name in the certificate of the connection, None if it names nobody."""


def check_speaker(state: Mapping[str, Any], name: str) -> None:
    """Refuse what is said in another name than that of the connection's certificate; without TLS there is none."""
    if CERTIFICATE in state and state[CERTIFICATE] != name:
        raise RefusedError(
            "forged",
            f"a certificate of {state[CERTIFICATE] or 'nobody'} speaks as {name}",
            hint=f"Use one whose commonName is {name}",
        )


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject's commonName in what `getpeercert` returns; None without one, or with several.

    >>> common_name({"subject": ((("organizationName", "us"),), (("commonName", "A"),))})
    'A'
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    return names[0] if len(names) == 1 else None
