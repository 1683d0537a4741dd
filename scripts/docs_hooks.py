"""What MkDocs does with a page before it renders it, and with the site after that.

The second word of a code block's info string (`bash spark`) is for `tests/docs`; the Markdown extension takes one word.
Links to `../examples` are right in a checkout; the site has a copy of that folder.
A word of the glossary leads there where a page uses it first.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
GLOSSARY = EXAMPLES.parent / "docs" / "glossary.md"
LINKED = {
    f"{name}.md"
    for name in (
        *("index", "first-example", "start-kafka", "choosing-a-policy", "operating", "watching", "backfill", "buffer"),
        *("many-nodes", "federation", "how-it-works", "shed"),
    )
}
"""Pages on which words lead to the glossary."""
NO_LINKS = {"a", "code", "pre", "h1", "h2", "h3", "h4", "th"}
_TERM = re.compile(r"^- \*\*(.+?)\*\*: ", re.MULTILINE)
_DEFINED = re.compile(r"<li><strong>(.+?)</strong>:")
_TAG = re.compile(r"(<[^>]+>)")
_OPENED = re.compile(r"<(/?)(\w+)")
_SECOND_WORD = re.compile(r"^(```\w+) [\w ]+$", re.MULTILINE)
_EXAMPLE = re.compile(r"\[([^\]]+)\]\(\.\./(examples[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with one word behind each fence, and with links to the examples in the site."""
    return _EXAMPLE.sub(r'<a href="\2">\1</a>', _SECOND_WORD.sub(r"\1", markdown))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The page with anchors at the glossary's words, or with a link at the first use of each of them."""
    if page.file.src_uri == GLOSSARY.name:
        return _DEFINED.sub(lambda found: f'<li id="{anchor(found[1])}"><strong>{found[1]}</strong>:', html)
    return html if page.file.src_uri not in LINKED else linked(html, words())


def words() -> dict[str, str]:
    """The glossary's words, and the anchor of the line that explains each."""
    terms = _TERM.findall(GLOSSARY.read_text(encoding="utf-8"))
    return {word: anchor(term) for term in terms for word in term.strip("`").split(", ")}


def anchor(term: str) -> str:
    """The anchor of a line of the glossary.

    >>> anchor("plan, planner"), anchor("<code>_weight</code>")
    ('word-plan', 'word-_weight')
    """
    return "word-" + re.sub(r"<[^>]+>|`", "", term).split(", ")[0].replace(" ", "-")


def linked(html: str, anchors: dict[str, str]) -> str:
    """The HTML of a page with a link at the first use of each word: in running text, and once per line of the glossary.

    >>> linked("<h2>A plan</h2><p>Plans <code>plan</code> a plan by a planner.</p>", {"plan": "a", "planner": "a"})
    '<h2>A plan</h2><p><a class="glossary" href="glossary.html#a">Plans</a> <code>plan</code> a plan by a planner.</p>'
    """
    longest_first = sorted(anchors, key=len, reverse=True)
    word = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(s?)(?![\w-])", re.IGNORECASE)
    lower = {name.lower(): place for name, place in anchors.items()}
    used: set[str] = set()

    def link(found: re.Match[str]) -> str:
        place = lower[found[1].lower()]
        if place in used:
            return found[0]
        used.add(place)
        return f'<a class="glossary" href="glossary.html#{place}">{found[0]}</a>'

    parts, inside = [], 0
    for part in _TAG.split(html):
        opened = _OPENED.match(part)
        if opened and opened[2] in NO_LINKS:
            inside += -1 if opened[1] else 1
        parts.append(part if inside or part.startswith("<") else word.sub(link, part))
    return "".join(parts)


def on_post_build(config: dict[str, Any], **_: Any) -> None:
    """Copy the examples into the site."""
    place = Path(config["site_dir"]) / "examples"
    shutil.copytree(EXAMPLES, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
