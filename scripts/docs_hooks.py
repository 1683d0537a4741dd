"""What MkDocs does with a page before it renders it.

The second word of a code block's info string (`bash spark`) is for `tests/docs`; the Markdown extension takes one word.
"""

from __future__ import annotations

import re
from typing import Any

_SECOND_WORD = re.compile(r"^(```\w+) [\w ]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with one word behind each fence."""
    return _SECOND_WORD.sub(r"\1", markdown)
