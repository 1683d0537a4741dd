"""How large the code is, and how it hangs together: a table of two states of the repository, for docs/architecture.md.

Run `python -m scripts.size_table` in a clone to see it, with `--write` to put it into the page. Each figure is a
count over `src/floodway` (lines of files, blank ones included; `__init__.py` is a file, but no module that is reached).

- *Modules that shed (or run) reaches* are those that Python loads when the function is imported: imports at the top of
  files, not those for types only. For shed the default law counts too, which is loaded by its name.
- *Shared class names* are those of public classes in several files.
- *Shared file names* are in several rooms; they leave `__init__.py` out.
- *Status fields read by text* are look-ups such as `status["keep"]`, where a typed status has attributes.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from scripts.check_dead_code import module_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEFORE = "ada94aa"
"""The last commit before the rooms were joined."""
BEGIN, END = "```text\nlines/files", "```\n"
"""Round the table in the page."""
ROOTS = {"shed": ("shed", "BatchLatencyController"), "run": ("run_network",)}
"""What a user calls, and what that loads by name."""
BY_TEXT = re.compile(r"(?<!query\.)\bstatus(?:es)?(?:\[|\.get\()[\"']")
FRONT = "front"


def trees(source: Path) -> dict[str, ast.Module]:
    """The modules below a `src` by their names."""
    paths = sorted(source.rglob("*.py"))
    return {module_name(path, source): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def loaded(body: Iterable[ast.stmt]) -> Iterator[str]:
    """What these statements import when a module is loaded: modules, and names that may be modules."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Try):
            yield from loaded(node.body)


def reached(known: Mapping[str, ast.Module], names: Iterable[str]) -> set[str]:
    """Of these modules those, without packages, that are loaded with the functions or classes of these names."""
    wanted = set(names)
    waiting = [
        module
        for module, tree in known.items()
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in wanted for node in tree.body)
    ]
    found = set[str]()
    while waiting:
        module = waiting.pop()
        if module in known and module not in found:
            found.add(module)
            waiting += loaded(known[module].body)
    return found - {name.rpartition(".")[0] for name in known}


def shared_classes(known: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Public names of classes that are in several of these modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in known.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def room_of(path: Path, source: Path) -> str:
    """The room that a file belongs to."""
    parts = path.relative_to(source).parts
    return parts[1] if len(parts) > 2 else FRONT


def sizes(root: Path) -> dict[str, str]:
    """Every figure of the table, by its name."""
    source = root / "src"
    paths, known = sorted(source.rglob("*.py")), trees(source)
    lines, files, names = Counter[str](), Counter[str](), defaultdict[str, set[str]](set)
    by_text = 0
    for path in paths:
        text, room = path.read_text(encoding="utf-8"), room_of(path, source)
        lines[room] += len(text.splitlines())
        files[room] += 1
        by_text += len(BY_TEXT.findall(text))
        if path.name != "__init__.py":
            names[path.name].add(room)
    found = {f"{room}/": _room(lines[room], files[room]) for room in sorted(files) if room != FRONT}
    return {
        **found,
        "all": _room(lines.total(), files.total()),
        **{f"modules {name} reaches": str(len(reached(known, names))) for name, names in ROOTS.items()},
        "shared class names": str(len(shared_classes(known))),
        "shared file names": str(sum(len(rooms) > 1 for rooms in names.values())),
        "status fields read by text": str(by_text),
        "decision records": str(len(list((root / "docs" / "decisions").glob("[0-9]*.md")))),
    }


def _room(lines: int, files: int) -> str:
    return f"{lines:,}/{files}"


def at_commit(commit: str, repository: Path = ROOT) -> dict[str, str]:
    """The figures of a commit."""
    packed = subprocess.run(
        ["git", "archive", commit, "src", "docs/decisions"], cwd=repository, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return sizes(Path(folder))


def table(before: dict[str, str], after: dict[str, str]) -> str:
    """Both in columns; what one of them does not have is a dash."""
    rows = {"lines/files": ("before", "after")}
    rows |= {name: (before.get(name, "–"), after.get(name, "–")) for name in {**after, **before}}
    width = max(map(len, rows)) + 2
    return "".join(f"{name:{width}}{old:>10}  {new:>10}\n" for name, (old, new) in rows.items())


def block(page: str) -> tuple[int, int]:
    """Where the table begins and ends in the page."""
    begin = page.index(BEGIN) + BEGIN.index("\n") + 1
    return begin, page.index(END, begin)


def written(page: str, text: str) -> str:
    """The page with this table."""
    begin, end = block(page)
    return page[:begin] + text + page[end:]


def main() -> None:
    """Print the table, or write it into the page."""
    text = table(at_commit(BEFORE), sizes(ROOT))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
