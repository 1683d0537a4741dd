"""Links lead somewhere, and every file, folder and module that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages, prose

SOURCE = ROOT / "src"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|md|yaml|yml|toml))?)`")
NAMED_MODULE = re.compile(r"`(floodway(?:\.\w+)+)")
PRODUCED = ("batches/", "build/", "dead-letters/", "demo-out/", "dropped/", "ledger/", "lost/", "plans/", "runs/")
"""Folders that a run makes: named in the docs, not in the repository."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_named_paths_exist(page: Path) -> None:
    named = NAMED_PATH.findall(prose(page))
    places = (ROOT, SOURCE / "floodway", page.parent)
    lost = [name for name in named if not any((place / name).exists() for place in places)]
    assert [name for name in lost if not name.startswith(PRODUCED)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_named_modules_exist(page: Path) -> None:
    assert [name for name in NAMED_MODULE.findall(prose(page)) if not defined(name)] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in navigation] == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("floodway.shed", True),
        ("floodway.planning.plan.Planner", True),
        ("floodway.spark", True),
        ("floodway.planning.plan.Nothing", False),
        ("floodway.nowhere", False),
    ],
)
def test_what_counts_as_defined(name: str, there: bool) -> None:
    assert defined(name) is there


def defined(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that its module mentions as its own; nothing is imported."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        folder = SOURCE.joinpath(*parts[:count])
        module = next((file for file in (folder.with_suffix(".py"), folder / "__init__.py") if file.is_file()), None)
        if module is None:
            continue
        rest = parts[count:]
        if not rest:
            return True
        own = rf'^(?:async def|def|class) {rest[0]}\b|^{rest[0]}\b.*=|^\s*"{rest[0]}"'
        return re.search(own, module.read_text(encoding="utf-8"), re.MULTILINE) is not None
    return False


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
