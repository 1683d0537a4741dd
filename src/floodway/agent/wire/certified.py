"""Whose certificate a connection came with.

The name is the subject's commonName. Host names in the certificate say where a member runs, not who it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CERTIFICATE = "certificate"
"""In the state of a request over TLS: the name in the certificate of the connection, None if it names nobody."""


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject's commonName in what `getpeercert` returns; None without one, or with several.

    >>> common_name({"subject": ((("organizationName", "us"),), (("commonName", "A"),))})
    'A'
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    return names[0] if len(names) == 1 else None
