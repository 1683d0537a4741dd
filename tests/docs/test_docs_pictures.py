"""The pictures in docs/pictures are those that the code draws today, and each is shown somewhere.

That of the demo is from a run of `make demo`: it shows what was measured, and cannot be drawn again.
"""

from __future__ import annotations

import re
from pathlib import Path

from scripts import make_screenshots
from scripts.make_pictures import FOLDER, make, names
from tests.docs.pages import pages

METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
"""Names the version of the drawing library, which may change without changing a picture."""


def test_pictures_are_up_to_date(tmp_path: Path) -> None:
    make(tmp_path)
    stale = [name for name in names() if drawing(tmp_path / name) != drawing(FOLDER / name)]
    assert stale == [], "run: python scripts/make_pictures.py"


def test_every_picture_is_made_and_shown() -> None:
    made = [*names(), *make_screenshots.names(), "demo.svg"]
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(made)
    shown = "".join(page.read_text(encoding="utf-8") for page in pages())
    assert [name for name in made if f"pictures/{name})" not in shown] == []


def test_screenshots_are_small_enough_for_a_repository() -> None:
    assert [name for name in make_screenshots.names() if (FOLDER / name).stat().st_size > 300_000] == []


def drawing(path: Path) -> str:
    """A picture without its metadata."""
    return METADATA.sub("", path.read_text(encoding="utf-8"))
