"""The documentation as a site: built strictly by MkDocs, with search, and nothing asked of another host."""

from __future__ import annotations

import re
from pathlib import Path

import floodway
from scripts.docs_hooks import LINKED, words
from tests.docs.pages import ROOT


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()
    assert "maxOffsetsPerTrigger" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


def test_the_reference_is_made_from_docstrings(site: Path) -> None:
    assert "target_latency" in (site / "api.html").read_text(encoding="utf-8")


def test_every_name_of_the_package_is_in_the_reference(site: Path) -> None:
    reference = (site / "api.html").read_text(encoding="utf-8")
    public = [name for name in floodway.__all__ if not name.startswith("_") and not name.endswith("Error")]
    assert [name for name in public if not re.search(rf'id="[\w.]*\b{name}\b', reference)] == []


def test_words_of_the_glossary_lead_there_where_they_are_used_first(site: Path) -> None:
    places = re.findall(r'id="(word-[^"]+)"', (site / "glossary.html").read_text(encoding="utf-8"))
    assert len(places) == len(set(places)) == len({*words().values()}) > 40
    found: dict[str, list[str]] = {
        page: re.findall(r'href="glossary\.html#([^"]+)"', (site / page.replace(".md", ".html")).read_text())
        for page in LINKED
    }
    for page, links in found.items():
        assert links and len(links) == len(set(links)), page
        assert set(links) <= set(places), page
    assert {"word-keep", "word-mode"} <= set(found["watching.md"])


def test_no_page_asks_another_host(site: Path) -> None:
    asked = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?https?://")
    assert [page.name for page in site.rglob("*.html") if asked.search(page.read_text(encoding="utf-8"))] == []


def test_links_between_pages_and_to_examples_lead_somewhere(site: Path) -> None:
    broken = [
        (page.name, link)
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for link in re.findall(r"<a[^>]+href=\"([^\"#:]+)(?:#[^\"]*)?\"", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []
    assert (site / "examples" / "overload.ipynb").is_file()
