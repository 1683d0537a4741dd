"""The page on the papers: every section of every paper has a row, and every row says where it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from floodway.experiments.registry import EXPERIMENTS
from scripts.check_dead_code import ROOTS, SOURCE, commands, module_name, reached
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "papers.md"
SECTIONS: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("paper_sections.yaml").read_text(encoding="utf-8")
)
"""Title of each numbered heading, by paper."""
NOTHING_TO_BUILD = ("introduction", "related work", "summary", "conclusion")


def rows(paper: str) -> list[tuple[list[str], str, str]]:
    """(sections, what, where) of each row in a paper's table."""
    return [(row[0].split(", "), row[1], row[2]) for row in cells(paper)]


def cells(heading: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)
    (part,) = [part for part in parts if heading in part[:200]]
    lines = [line for line in part.splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def holes(sections: Iterable[str]) -> list[str]:
    """Numbers that must be there, because a later one or a sub-section is, and are not.

    >>> holes(["1", "2", "2.2", "3.1"])
    ['2.1', '3']
    """
    known = set(sections)
    wanted: set[str] = set()
    for section in known:
        *above, last = section.split(".")
        wanted |= {".".join([*above, str(number)]) for number in range(1, int(last))}
        wanted |= {".".join(above)} if above else set()
    return sorted(wanted - known)


def test_holes_in_the_numbers_are_found() -> None:
    assert holes(["1", "2", "2.2", "3.1", "3.1.2"]) == ["2.1", "3", "3.1.1"]


@pytest.mark.parametrize("paper", SECTIONS)
def test_the_list_of_sections_lacks_none(paper: str) -> None:
    assert holes(SECTIONS[paper]) == []
    assert any(word in list(SECTIONS[paper].values())[-1] for word in ("Summary", "Conclusion"))  # the last one


@pytest.mark.parametrize("paper", SECTIONS)
def test_every_section_has_a_row(paper: str) -> None:
    mapped = {section for sections, _, _ in rows(paper) for section in sections}
    assert mapped <= set(SECTIONS[paper])
    # A heading that only introduces its sub-sections needs no row of its own.
    introduced = {section.rpartition(".")[0] for section in mapped}
    assert set(SECTIONS[paper]) - mapped - introduced == set()


@pytest.mark.parametrize("paper", SECTIONS)
def test_every_row_names_a_file_or_has_nothing_to_build(paper: str) -> None:
    for sections, what, where in rows(paper):
        if where == "–":
            assert any(word in what for word in NOTHING_TO_BUILD), (sections, what)
        else:
            # That what is named exists is checked for all pages, in test_docs_links.py.
            assert re.search(r"`[\w/.-]+\.(py|yaml)`|\]\(\S+\.md\)", where), (sections, where)


def test_code_that_the_page_names_is_reached_from_a_command() -> None:
    trees = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    alive = reached(trees, {*ROOTS, *commands(trees["floodway.cli.main"])})
    named = re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`", PAGE.read_text(encoding="utf-8"))
    files = [SOURCE / "floodway" / name for name in named if (SOURCE / "floodway" / name).exists()]
    assert len(files) > 80
    assert [module_name(file) for file in files if module_name(file) not in alive] == []


def test_every_open_problem_has_a_state_and_what_shows_it() -> None:
    problems = cells("What the papers leave open")
    assert len(problems) > 10
    for _, problem, state, shown in problems:
        kind, _, missing = state.partition(":")
        assert kind in ("answered", "partly", "not"), problem
        assert missing or kind != "partly", f"{problem}: what is missing?"
        names = re.findall(r"`([^`]+)`", shown)
        assert bool(names) == (kind != "not"), problem
        for name in names:
            assert name in EXPERIMENTS or (ROOT / name).is_file(), name
