"""The page on the papers: every section of every paper has a row, and every row says where it is."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "papers.md"
SECTIONS = {
    "short FIT paper": "1 1.1 1.2 1.3 2 3.1 3.2 3.3 3.4 4 5 6",
    "long FIT paper": (
        "1 1.1 1.2 2 3.1 3.2 3.3 4 5 5.1 5.2 6 6.1 6.2.1 6.2.2 6.3 6.4 7 8.1 8.2.1 8.2.2 8.2.3 8.2.4 8.2.5 9 10"
    ),
    "Buffer-preposed": "1 2 3 4.1 4.2 4.3 5 5.1 5.2 5.3 6",
    "DISSP": "1 2 3 4 5 6",
    "Medusa": "1 2 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 4.1 4.2 5 5.1 5.2 5.3 5.4 6",
}
"""Numbered headings as the papers have them; one that only introduces its sub-sections is left out."""
NOTHING_TO_BUILD = ("introduction", "related work", "summary", "conclusion")


def rows(paper: str) -> list[tuple[list[str], str, str]]:
    """(sections, what, where) of each row in a paper's table."""
    (part,) = [part for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M) if paper in part[:200]]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:1] == "|"]
    return [(row[0].strip().split(", "), row[1], row[2].strip(" |")) for row in cells[2:]]


@pytest.mark.parametrize("paper", SECTIONS)
def test_every_section_has_a_row(paper: str) -> None:
    mapped = {section for sections, _, _ in rows(paper) for section in sections}
    assert mapped == set(SECTIONS[paper].split())


@pytest.mark.parametrize("paper", SECTIONS)
def test_every_row_names_a_file_or_has_nothing_to_build(paper: str) -> None:
    for sections, what, where in rows(paper):
        if where == "–":
            assert any(word in what for word in NOTHING_TO_BUILD), (sections, what)
        else:
            # That what is named exists is checked for all pages, in test_docs_links.py.
            assert re.search(r"`[\w/.-]+\.(py|yaml)`|\]\(\S+\.md\)", where), (sections, where)
