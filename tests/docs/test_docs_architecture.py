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


class WithoutTypes(ast.NodeTransformer):
    """Takes types out of a file: what is left runs."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if ast.unparse(node.test) == "TYPE_CHECKING" else node


def imports(file: Path) -> set[tuple[str, str]]:
    """All (module, name) that a file imports from the package and uses when it runs, also inside functions.

    Of a package's front everything that it imports, for others.
    """
    tree = WithoutTypes().visit(ast.parse(file.read_text(encoding="utf-8")))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        (node.module, alias.name)
        for node in nodes
        for alias in node.names
        if node.module and (file.name == "__init__.py" or (alias.asname or alias.name) in used)
    }


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
    """Every file calls or makes something of another one of the walk, or the other way round, and all hang together."""
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


def test_a_file_that_only_names_the_types_of_another_does_not_use_it(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "from floodway.a import A, a\nfrom floodway.b import B\nif TYPE_CHECKING:\n    from floodway.c import C\n"
        "def f(x: B, y: C) -> B:\n    z: A = a()\n    return z\n"
    )
    assert imports(file) == {("floodway.a", "a")}
