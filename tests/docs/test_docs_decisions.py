"""The index of the decisions is complete, and a record without a proper heading is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.index_decisions import FOLDER, INDEX, index, records


def test_the_index_lists_every_record() -> None:
    text = INDEX.read_text(encoding="utf-8")
    missing = [path.name for path in FOLDER.glob("*.md") if path != INDEX and f"]({path.name})" not in text]
    assert missing == [], "run: python scripts/index_decisions.py"
    assert text == index(), "run: python scripts/index_decisions.py"


def test_numbers_are_given_once() -> None:
    numbers = [number for number, _, _ in records()]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("heading", ["# Why", "# 0002 Another number", "0001 No heading"])
def test_a_record_needs_its_number_and_a_title(heading: str, tmp_path: Path) -> None:
    (tmp_path / "0001-why.md").write_text(heading + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="0001-why"):
        records(tmp_path)
