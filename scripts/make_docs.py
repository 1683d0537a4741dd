"""All pages as browsable HTML: `make docs` writes build/docs/index.html. Nothing is fetched; no page has a script.

Markdown is read by the parser that `rich` brings along. Links between pages lead to their HTML; links to files that are
no page (code, licences) lead to copies.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "docs"
PICTURES = (".svg", ".png")
STYLE = """
:root { color-scheme: light dark; --line: #8885; --faint: #8882; --accent: #0b6e8f; }
@media (prefers-color-scheme: dark) { :root { --accent: #56b6d6; } }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0; display: flex; flex-wrap: wrap; }
nav { flex: 0 0 220px; padding: 18px; border-right: 1px solid var(--line); font-size: .92rem; }
nav a { display: block; padding: 3px 0; } nav a[aria-current] { font-weight: 700; }
main { flex: 1 1 420px; max-width: 860px; padding: 8px 26px 60px; min-width: 0; }
a { color: var(--accent); } h1 { line-height: 1.2; }
pre { background: var(--faint); padding: 12px; border-radius: 8px; overflow-x: auto; }
code { font-size: .9em; background: var(--faint); border-radius: 4px; padding: 1px 4px; } pre code { background: none; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); padding: 5px 14px 5px 0; }
img { max-width: 100%; background: #fff; border-radius: 8px; }
"""


def pages() -> list[Path]:
    """Every page, relative to the project: those at its top, then those of docs."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT) for path in found)


def target(page: Path) -> Path:
    """Where a page's HTML goes; docs/README.md is the index."""
    if page == Path("docs/README.md"):
        return Path("index.html")
    name = page.relative_to("docs") if page.parts[0] == "docs" else Path("project") / page
    return name.with_suffix(".html")


def make(out: Path = OUT) -> list[Path]:
    """Write all pages; returns the files written."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "pictures", out / "pictures")
    written = []
    for page in pages():
        path = out / target(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(page, out), encoding="utf-8")
        written.append(path)
    return written


def render(page: Path, out: Path) -> str:
    """One page with the list of all."""
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse((ROOT / page).read_text(encoding="utf-8"))
    _anchors(tokens)
    _links(tokens, page, out)
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title(page))} – Floodway</title><style>{STYLE}</style></head>"
        f'<body><nav aria-label="Pages">{_list(page)}</nav><main>{body}</main></body></html>'
    )


def title(page: Path) -> str:
    """The heading of a page."""
    found = re.search(r"^# (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else page.stem


def anchor(heading: str) -> str:
    """The anchor of a heading, as forges make it.

    >>> anchor("What to do when …")
    'what-to-do-when-'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _list(page: Path) -> str:
    shown = [other for other in pages() if other.parts[0] != "docs" or len(other.parts) == 2]
    shown.append(Path("docs/decisions/README.md"))
    here = target(page).parent.as_posix()
    current = ' aria-current="page"'
    return "".join(
        f'<a href="{posixpath.relpath(target(other).as_posix(), here)}"{current if other == page else ""}>'
        f"{escape(title(other))}</a>"
        for other in shown
    )


def _anchors(tokens: list[Token]) -> None:
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(re.sub(r"[`*\[\]]|\([^)]*\)", "", inside.content)).strip("-"))


def _links(tokens: list[Token], page: Path, out: Path) -> None:
    for token in tokens:
        for child in token.children or ():
            key = {"link_open": "href", "image": "src"}.get(child.type)
            given = str(child.attrGet(key) or "") if key else ""
            if key and given and not re.match(r"[a-z]+:|#", given):
                child.attrSet(key, _moved(given, page, out))


def _moved(given: str, page: Path, out: Path) -> str:
    name, _, fragment = given.partition("#")
    wanted = Path(posixpath.normpath((page.parent / name).as_posix()))
    here = target(page).parent.as_posix()
    if wanted in pages():
        to = target(wanted)
    elif wanted.suffix in PICTURES and wanted.parts[:2] == ("docs", "pictures"):
        to = wanted.relative_to("docs")
    else:
        to = Path("files") / wanted
        if (ROOT / wanted).is_file():
            (out / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / wanted, out / to)
    return posixpath.relpath(to.as_posix(), here) + (f"#{fragment}" if fragment else "")


if __name__ == "__main__":
    count = len(make())
    print(f"{count} pages: {OUT.relative_to(ROOT)}/index.html", file=sys.stderr)
