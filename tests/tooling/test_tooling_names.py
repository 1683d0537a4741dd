"""One name, one class: a name that two rooms use for different things hides both, and dead code with them."""

from __future__ import annotations

from pathlib import Path

from scripts.size_table import shared_classes, trees

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_no_two_classes_share_a_name() -> None:
    assert shared_classes(trees(SOURCE)) == {}


def test_parts_per_million_are_defined_once() -> None:
    found = [path for path in SOURCE.rglob("*.py") if "\nPPM = " in path.read_text(encoding="utf-8")]
    assert found == [SOURCE / "floodway" / "units.py"]


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class One: ...\nclass _Two: ...\n")
    (tmp_path / "b.py").write_text("class One: ...\nclass _Two: ...\nclass Three: ...\n")
    assert shared_classes(trees(tmp_path)) == {"One": ["a", "b"]}
