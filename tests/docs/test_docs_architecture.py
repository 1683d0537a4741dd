"""The page on the architecture walks a tuple through files that exist, and that use each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "floodway"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = {
    "run": ("## One tuple's way", "### With deadlines", 30),
    "shed": ("1. **Bind.**", "Window Drop and utilities replace", 12),
}
"""Where each walk begins and ends, and how many files it may have."""


def walked(walk: str) -> list[str]:
    begin, end, _ = WALKS[walk]
    text = PAGE[PAGE.index(begin) : PAGE.index(end)]
    return list(dict.fromkeys(re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", text)))


def imports(file: Path) -> set[tuple[str, str]]:
    """All (module, name) that a file imports from the package, also inside functions."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {(node.module, alias.name) for node in nodes for alias in node.names if node.module}


def used_by(file: str) -> set[str]:
    """The files of the package that a file uses: a name that it takes from a package's front is its module's."""
    found: set[str] = set()
    for module, name in imports(SOURCE / file):
        if module.startswith("floodway."):
            place = SOURCE / module.removeprefix("floodway.").replace(".", "/")
            front = place / "__init__.py"
            origins = [module, f"{module}.{name}"]
            if front.is_file():
                origins += [origin for origin, given in imports(front) if given == name]
            found |= {f"{origin.removeprefix('floodway.').replace('.', '/')}.py" for origin in origins}
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_short_and_its_files_exist(walk: str) -> None:
    files = walked(walk)
    assert 5 < len(files) <= WALKS[walk][2]
    assert [file for file in files if not (SOURCE / file).is_file()] == []


@pytest.mark.parametrize("walk", WALKS)
def test_the_files_of_a_walk_use_each_other(walk: str) -> None:
    """Every file imports another one of the walk, or is imported by one, and all hang together."""
    files = set(walked(walk))
    uses = {file: used_by(file) & files for file in files}
    linked = {file: uses[file] | {one for one in files if file in uses[one]} for file in files}
    assert {file for file, others in linked.items() if not others - {file}} == set()
    reached, waiting = set(), [walked(walk)[0]]
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += linked[file]
    assert reached == files
