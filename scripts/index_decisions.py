"""Write the index of the decision records, docs/decisions/README.md, from the records themselves.

Run `python scripts/index_decisions.py` after adding or renaming one; tests/docs/test_docs_decisions.py tells when.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "decisions"
INDEX = FOLDER / "README.md"
TITLE = re.compile(r"# 0*(\d+)\.? (.+)")
GROUPS = {
    0: "Foundations",
    1: "Log and source",
    2: "Control",
    3: "`floodway.shed`",
    4: "Buffering",
    5: "Planning",
    6: "Measuring",
    7: "Contracts",
    8: "The buffer on Spark",
    9: "Plans between nodes",
    10: "Nodes as processes",
    11: "Participants of a federation",
    13: "Accounts",
}
HEAD = """# Decisions

A record (context, decision, consequences; at most 150 words) for each choice that a newcomer would question. This page
is written by `scripts/index_decisions.py`. To add a record, take the next free number of its group, write
`NNNN-what-was-decided.md` with the heading `# NNNN What was decided`, and run the script.
"""


def records(folder: Path = FOLDER) -> list[tuple[int, str, str]]:
    """(number, title, file name) of every record, in order; a record without a proper heading is refused."""
    found = []
    for path in sorted(folder.glob("[0-9]*.md")):
        heading = path.read_text(encoding="utf-8").splitlines()[0]
        match = TITLE.fullmatch(heading)
        if match is None or int(match[1]) != int(path.name[:4]):
            raise ValueError(f"{path.name} begins with {heading!r}, not with '# {path.name[:4]} Title'")
        found.append((int(match[1]), match[2], path.name))
    return found


def index(folder: Path = FOLDER) -> str:
    """The page."""
    lines = [HEAD]
    group = -1
    for number, title, name in records(folder):
        if number // 10 != group:
            group = number // 10
            lines.append(f"\n## {GROUPS.get(group, f'{group}0 and on')}\n\n")
        lines.append(f"- [{number:04d}]({name}) {title}\n")
    return "".join(lines)


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
