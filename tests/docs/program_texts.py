"""What users read of the program itself: its messages, helps, pages and examples, as texts to check the words of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "floodway"
EXPERIMENTS = SOURCE / "experiments"
READ_AS_A_WHOLE = (
    *sorted((SOURCE / "dashboard" / "static").glob("*.js")),
    *sorted((SOURCE / "dashboard" / "static").glob("*.html")),
    *sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in {".py", ".yaml", ".ipynb"}),
    *sorted(path for path in (ROOT / "ops").rglob("*") if path.suffix in {".json", ".yaml"}),
)
HOLE = "…"
"""Stands for what a message has put into it."""


@cache
def texts() -> tuple[tuple[Path, int, str], ...]:
    """File, line and text of what the program says; of experiments and benchmarks the titles only."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[Path, int, str]]:
    for module in sorted(SOURCE.rglob("*.py")):
        listed = module.is_relative_to(EXPERIMENTS / "demo") or module.name == "registry.py"
        of_papers = module.is_relative_to(EXPERIMENTS) and not listed
        yield from ((module, line, text) for line, text in (_titles if of_papers else literals)(module))


def _titles(module: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        is_title = (isinstance(node, ast.keyword) and node.arg == "TITLE") or (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TITLE"
        )
        if is_title and isinstance(node, ast.keyword | ast.Assign) and isinstance(node.value, ast.Constant):
            yield node.value.lineno, str(node.value.value)


def literals(module: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module: docstrings of commands only, which are their helps.

    The parts of one message, written one below the other or with figures in it, are one text.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    silent = set() if module.is_relative_to(SOURCE / "cli") else set(_docstrings(tree))
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent | inside:
            yield node.lineno, node.value


def _part(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else HOLE


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings, and the texts below an attribute or a constant: for who reads the code."""
    for node in ast.walk(tree):
        body = getattr(node, "body", [])
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value
