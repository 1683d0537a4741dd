"""What a browser must not do for a web page of another site: reach an agent, read its answers, or frame its page.

A browser says where a request comes from: `Origin` is the site of the page, `Sec-Fetch-Site` how that is related to the
site asked, and after a change of DNS (rebinding) `Host` is still the site's name. Other programs send none of these and
go on to the signature. A link on another site may open the page, in a tab of its own: a navigation brings nothing with
it and gives nothing back.
"""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import Scope

from floodway.agent.wire.refusals import RefusedError

SAFE_METHODS = ("GET", "HEAD")
ANSWER_HEADERS = {
    # Nothing that an agent answers is a document, but for the page, which names its own policy.
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
"""In every answer, unless the route gives another value."""


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_site(scope: Scope, headers: Headers, *, authenticated: bool) -> None:
    """Refuse what a page of another site sends; without authentication also what names another host than loopback."""
    host = headers.get("host", "")
    opened = scope["method"] in SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"
    opened = opened and headers.get("sec-fetch-dest") == "document"
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    # Not its scheme: a proxy may speak TLS to the browser.
    own = origin is None or origin.partition("://")[2] == host != ""
    local = authenticated or not host or is_loopback(_name(host))
    if not own or not local or (site not in ("same-origin", "none") and not opened):
        raise RefusedError("foreign", "the request comes from a page of another site", hint="Use the loopback address")


def _name(host: str) -> str:
    """The host without its port.

    >>> [_name(host) for host in ("127.0.0.1:80", "[::1]:80", "[::1]", "localhost")]
    ['127.0.0.1', '::1', '::1', 'localhost']
    """
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return name.strip("[]")
