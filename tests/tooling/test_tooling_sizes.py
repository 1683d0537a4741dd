"""The table of sizes: what is counted, and that the page shows what is there."""

from __future__ import annotations

from pathlib import Path

from scripts.size_table import PAGE, ROOT, ROOTS, block, reached, sizes, table, trees, written

MOST_REACHED = 45
"""Modules that `shed` reaches; lower this when it reaches fewer."""
STALE = 0.05


def house(root: Path) -> Path:
    """A house of two rooms: `shed` loads one module of the other, names another for its types, and one when it runs."""
    files = {
        "__init__.py": "from floodway.a import one\n",
        "a/__init__.py": "",
        "a/one.py": "from floodway.b import two\nif TYPE_CHECKING:\n    from floodway.b.three import Three\n"
        "def shed():\n    from floodway.b.four import four\n",
        "b/__init__.py": "",
        "b/two.py": "import floodway.units\nclass Two: ...\nkeep = status['keep'] + query.status['message']\n",
        "b/three.py": "class Three: ...\nclass Two: ...\n",
        "b/four.py": "four = 4\n",
        "b/one.py": "",
        "units.py": "",
    }
    for name, text in files.items():
        path = root / "src" / "floodway" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_what_is_loaded_is_reached(tmp_path: Path) -> None:
    found = reached(trees(house(tmp_path) / "src"), ["shed"])
    assert found == {"floodway.a.one", "floodway.b.two", "floodway.units"}


def test_everything_is_counted(tmp_path: Path) -> None:
    found = sizes(house(tmp_path))
    assert found == {
        "a/": "5/2",
        "b/": "6/5",
        "all": "12/9",
        "modules shed reaches": "3",
        "modules run reaches": "0",
        "shared class names": "1",
        "shared file names": "1",
        "status fields read by text": "1",
        "decision records": "0",
    }


def test_a_table_goes_where_the_old_one_was() -> None:
    text = table({"all": "1/1", "old": "2"}, {"all": "3/2"})
    page = "a\n```text\nother\n```\n```text\n{}```\nb\n"
    assert written(page.format("lines/files\nstale 1 2\n"), text) == page.format(text)
    assert [line.split() for line in text.splitlines()] == [
        ["lines/files", "before", "after"], ["all", "1/1", "3/2"], ["old", "2", "–"],
    ]  # fmt: skip


def test_the_page_shows_what_is_there() -> None:
    """Within a few per cent: `python -m scripts.size_table --write` renews it."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = block(page)
    rows = [line.rsplit(maxsplit=2) for line in page[begin:end].splitlines()[1:]]
    present = sizes(ROOT)
    assert [name for name, *_ in rows] == list(present)
    for name, _, shown in rows:
        for old, new in zip(*(map(_number, text.split("/")) for text in (shown, present[name])), strict=True):
            assert abs(new - old) <= max(2.0, STALE * old), (name, shown, present[name])


def test_shed_reaches_no_more_than_before() -> None:
    assert len(reached(trees(ROOT / "src"), ROOTS["shed"])) <= MOST_REACHED


def _number(text: str) -> float:
    return float(text.replace(",", ""))
