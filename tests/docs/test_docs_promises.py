"""Every test that a page names as the proof of a promise exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`(test_\w+)`")
_DEFINED = re.compile(r"^def (test_\w+)", re.MULTILINE)


def test_every_promise_of_the_security_page_has_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.rstrip(" |").endswith(("`", "."))]
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in _DEFINED.findall(path.read_text("utf-8"))
    }
    assert set(_NAMED.findall(page)) - defined == set()
    assert len([row for row in rows if _NAMED.search(row)]) >= 20


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for part in page.split("| promise | test |")[1:]:
        for row in part.split("\n\n")[0].splitlines()[2:]:
            assert _NAMED.search(row), row
