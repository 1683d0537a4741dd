"""What MkDocs does with a page before it renders it, and with the site after that.

The second word of a code block's info string (`bash spark`) is for `tests/docs`; the Markdown extension takes one word.
Links to `../examples` are right in a checkout; the site has a copy of that folder.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_SECOND_WORD = re.compile(r"^(```\w+) [\w ]+$", re.MULTILINE)
_EXAMPLE = re.compile(r"\[([^\]]+)\]\(\.\./(examples[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with one word behind each fence, and with links to the examples in the site."""
    return _EXAMPLE.sub(r'<a href="\2">\1</a>', _SECOND_WORD.sub(r"\1", markdown))


def on_post_build(config: dict[str, Any], **_: Any) -> None:
    """Copy the examples into the site."""
    place = Path(config["site_dir"]) / "examples"
    shutil.copytree(EXAMPLES, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
