"""The documentation as a site: built strictly by MkDocs, with search, and nothing asked of another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site. Strict: a broken link between pages, or a page that is nowhere in the navigation, fails."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()
    assert "maxOffsetsPerTrigger" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


def test_the_reference_is_made_from_docstrings(site: Path) -> None:
    assert "target_latency" in (site / "api.html").read_text(encoding="utf-8")


def test_no_page_asks_another_host(site: Path) -> None:
    asked = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?https?://")
    assert [page.name for page in site.rglob("*.html") if asked.search(page.read_text(encoding="utf-8"))] == []
