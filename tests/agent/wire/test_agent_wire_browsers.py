"""What browsers send for pages of other sites is refused, whatever it asks; programs are not taken for browsers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from floodway.agent.wire.guard import check_site
from floodway.agent.wire.refusals import RefusedError

OWN = "127.0.0.1:8800"


def passes(method: str, authenticated: bool = False, /, **headers: str) -> bool:
    given = {name.replace("_", "-"): value for name, value in {"host": OWN, **headers}.items()}
    try:
        check_site({"method": method}, Headers(given), authenticated=authenticated)
    except RefusedError as error:
        return error.reason != "foreign"
    return True


@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_pages_of_other_sites(method: str, authenticated: bool) -> None:
    def one(**headers: str) -> bool:
        return passes(method, authenticated, **headers)

    assert one() and one(sec_fetch_site="none") and one(sec_fetch_site="same-origin", origin=f"http://{OWN}")
    assert not one(origin="https://evil.example") and not one(origin="null")
    assert not one(origin="http://127.0.0.1:9999"), "another program's page on this machine"
    assert not one(sec_fetch_site="cross-site") and not one(sec_fetch_site="same-site")
    assert not one(sec_fetch_site="cross-site", sec_fetch_mode="no-cors", sec_fetch_dest="image")
    assert not one(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="iframe"), "framed"


def test_a_link_on_another_site_may_open_the_page_but_post_nothing() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert passes("GET", **link) and not passes("POST", **link)


def test_a_name_that_was_made_to_point_to_this_machine_is_refused_without_authentication() -> None:
    for host in ("evil.example", "evil.example:8800", "10.0.0.7", "[2001:db8::1]:80"):
        assert not passes("GET", host=host)
        assert passes("GET", True, host=host), "who signs may come by any name"
    for host in ("localhost", "localhost:1", "[::1]:8800", "[::1]", "127.0.0.7:80"):
        assert passes("GET", host=host)


def test_behind_a_proxy_with_tls_the_own_origin_is_https() -> None:
    assert passes("POST", True, host="jobs.example", origin="https://jobs.example", sec_fetch_site="same-origin")
    assert not passes("POST", True, host="jobs.example", origin="https://evil.example")
