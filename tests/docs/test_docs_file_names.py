"""A file that a docstring or a comment names is there: in the same folder, above it, or by its path in the package."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "floodway"
NAMED = re.compile(r"(?<![\w/.*-])((?:[a-z_]+/)*[a-z_0-9]+\.py)\b|`([a-z_]+(?:/[a-z_0-9]+)+)`")
"""`cut.py`, `source/cut.py`, or between backquotes `source/cut`, where there is a folder `source`."""


def words(path: Path) -> Iterator[str]:
    """All comments of a file and its strings over several lines or with backquotes: what is written for readers."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        is_text = token.type == tokenize.STRING and (token.string.startswith('"""') or "`" in token.string)
        if is_text or token.type == tokenize.COMMENT:
            yield token.string


def missing(path: Path, root: Path) -> list[str]:
    """Files that a module names and that are not there."""
    found = [name.group(1) or name.group(2) for text in words(path) for name in NAMED.finditer(text)]
    bases = [folder for folder in path.parents if root in (folder, *folder.parents)]
    bases += [root, ROOT, ROOT / "tests"]
    rooms = {folder.name for base in bases for folder in base.iterdir() if folder.is_dir()}
    named = [name for name in found if name.endswith(".py") or name.partition("/")[0] in rooms]
    return [name for name in named if not any(_is_there(base / name) for base in bases)]


def _is_there(place: Path) -> bool:
    return place.exists() or place.with_suffix(".py").is_file()


def test_files_that_are_named_exist() -> None:
    found = {str(path.relative_to(SOURCE)): missing(path, SOURCE) for path in sorted(SOURCE.rglob("*.py"))}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_file_that_has_moved_is_found(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "near.py").touch()
    text = '"""See `near.py`, `room/near.py`, `room/near`, `far.py` and `room/far`."""\nX = 1  # as in gone.py\n'
    (tmp_path / "room" / "this.py").write_text(text)
    assert missing(tmp_path / "room" / "this.py", tmp_path) == ["far.py", "room/far", "gone.py"]
