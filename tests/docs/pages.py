"""What the tests of the documentation share: every page, its code blocks, and a folder to run them in."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from typer.core import TyperGroup
from typer.exceptions import Exit, TyperException
from typer.main import get_group

from floodway.cli import main

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


@cache
def command_line() -> TyperGroup:
    """All commands of floodway, with their options."""
    if not main.app.registered_commands:
        main.register()
    return get_group(main.app)


def understood(words: list[str]) -> str:
    """What the command line says of a floodway command that it cannot take; empty if it could run it.

    It is parsed as it would be and not run: options that are not there, missing ones, and words too many are refused.
    """
    known = command_line().commands
    if words[0] not in known:
        return f"no command {words[0]}"
    try:
        known[words[0]].make_context(words[0], words[1:])
    except TyperException as error:
        return str(error)
    except Exit:  # --help
        pass
    return ""


def workplace(folder: Path) -> Path:
    """A folder that looks like the project to those who only read."""
    for name in ("docs", "examples", "src"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def environment() -> dict[str, str]:
    """The environment with this Python's commands first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
