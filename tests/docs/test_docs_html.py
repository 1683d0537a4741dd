"""`make docs` writes every page, and every link in them leads to a file and an anchor that are there."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts.make_docs import make, pages, target


class Links(HTMLParser):
    """Addresses that a page names, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.addresses.append(value or "")
            if name == "id":
                self.anchors.add(value or "")


def links(path: Path) -> Links:
    found = Links()
    found.feed(path.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    out = tmp_path_factory.mktemp("site")
    make(out)
    return out


def test_every_page_is_there_and_reachable_from_the_index(site: Path) -> None:
    assert [page for page in pages() if not (site / target(page)).is_file()] == []
    seen, waiting = set[Path](), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".html":
            continue
        seen.add(path)
        for address in links(path).addresses:
            name = address.partition("#")[0]
            if name and "://" not in name:
                waiting.append((path.parent / name).resolve())
    assert {(site / target(page)).resolve() for page in pages()} - {path.resolve() for path in seen} == set()


def test_links_lead_somewhere(site: Path) -> None:
    broken = []
    for path in site.rglob("*.html"):
        for address in links(path).addresses:
            name, _, fragment = address.partition("#")
            if "://" in name or name.startswith("mailto:"):
                continue
            to = (path.parent / name).resolve() if name else path
            there = to.exists() or (site / "files").resolve() in to.parents
            if not there or (fragment and to.suffix == ".html" and fragment not in links(to).anchors):
                broken.append(f"{path.name}: {address}")
    assert broken == []


def test_nothing_is_fetched(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text
        assert 'src="http' not in text
