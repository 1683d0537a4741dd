"""The index of the decisions is complete, and a record without a proper heading or status is refused."""

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
    numbers = [record.number for record in records()]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("heading", ["# Why", "# 0002 Another number", "0001 No heading"])
def test_a_record_needs_its_number_and_a_title(heading: str, tmp_path: Path) -> None:
    (tmp_path / "0001-why.md").write_text(f"{heading}\n\n*Accepted.*\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"0001-why.* begins"):
        records(tmp_path)


@pytest.mark.parametrize("status", ["", "Accepted", "*Replaced.*", "*Replaced by 0001.*", "*Replaced by 0009.*"])
def test_a_record_says_whether_it_holds(status: str, tmp_path: Path) -> None:
    (tmp_path / "0001-why.md").write_text(f"# 0001 Why\n\n{status}\n\n**Context.** None.\n", encoding="utf-8")
    (tmp_path / "0002-how.md").write_text("# 0002 How\n\n*Accepted.*\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"0001-why.* has the status"):
        records(tmp_path)


def test_the_index_shows_what_was_replaced(tmp_path: Path) -> None:
    (tmp_path / "0001-why.md").write_text("# 0001 Why\n\n*Replaced by 0002.*\n", encoding="utf-8")
    (tmp_path / "0002-how.md").write_text("# 0002 How\n\n*Accepted.*\n", encoding="utf-8")
    assert index(tmp_path).endswith("(0001-why.md) Why (replaced by 0002)\n- [0002](0002-how.md) How (accepted)\n")
