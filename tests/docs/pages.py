"""What the tests of the documentation share: every page, its code blocks, and a folder to run them in."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: where it begins, its language, what follows the language, and its text."""

    page: Path
    line: int
    language: str
    note: str
    body: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All pages of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(*languages: str) -> list[Block]:
    """Code blocks in these languages, of all pages."""
    return [block for page in pages() for block in blocks_of(page) if block.language in languages]


def blocks_of(page: Path) -> list[Block]:
    """Code blocks of one page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, note = match["info"].strip().partition(" ")
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, note.strip(), match["body"]))
    return found


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(block: Block) -> list[str]:
    """The commands of a shell block, one a line; comments and a console's prompts left out."""
    lines = [line.removeprefix("$ ").split(" #")[0].strip() for line in block.body.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def workplace(folder: Path) -> Path:
    """A folder that looks like the project to those who only read."""
    for name in ("docs", "examples", "src"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def environment() -> dict[str, str]:
    """The environment with this Python's commands first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
