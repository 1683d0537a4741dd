"""What a signed request needs to know of the process that it is for: asked as a client asks, and checked."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from floodway.agent.wire.signing import NONCE_HEADER, SIGNATURE_HEADER, answer_fault, signed_headers
from tests.patience import PATIENCE_SECONDS


def met(url: str, key: bytes) -> tuple[str, float]:
    """The epoch of a server, and its seconds now."""
    headers = signed_headers(key, "GET", "/", b"")
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/", None, headers)
        response = connection.getresponse()
        body = response.read()
        signature = response.getheader(SIGNATURE_HEADER)
    finally:
        connection.close()
    assert answer_fault(key, response.status, headers[NONCE_HEADER], body, signature) is None
    told = json.loads(body)
    assert told["refused"] == "unmet"
    return told["epoch"], told["seconds"]


def signed_for(url: str, key: bytes, method: str, path: str, body: bytes, *, later: float = 0.0) -> dict[str, str]:
    """The headers of a request that this server takes, `later` by some seconds than its clock says."""
    epoch, seconds = met(url, key)
    return signed_headers(key, method, path, body, epoch, seconds + later)
