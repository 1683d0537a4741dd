"""One name, one class: a name that two rooms use for different things hides both, and dead code with them."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "floodway"
MOST_SHARED = 14
"""Of the public names, at most so many stand for several classes; lower this when one of them has gone."""


def shared_names(source: Path) -> dict[str, list[str]]:
    """Public names of classes that stand in several files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(source)))
    return {name: places for name, places in found.items() if len(places) > 1}


def test_few_classes_share_a_name() -> None:
    found = shared_names(SOURCE)
    assert len(found) <= MOST_SHARED, found


def test_parts_per_million_are_defined_once() -> None:
    found = [path for path in SOURCE.rglob("*.py") if "\nPPM = " in path.read_text(encoding="utf-8")]
    assert found == [SOURCE / "units.py"]


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class One: ...\nclass _Two: ...\n")
    (tmp_path / "b.py").write_text("class One: ...\nclass _Two: ...\nclass Three: ...\n")
    assert shared_names(tmp_path) == {"One": ["a.py", "b.py"]}
