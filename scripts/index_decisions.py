"""Write the index of the decision records, docs/decisions/README.md, from the records themselves.

Run `python scripts/index_decisions.py` after adding or renaming one; tests/docs/test_docs_decisions.py tells when.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

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
STATUS = re.compile(r"\*(Accepted|Replaced by (\d{4}))\.\*")
HEAD = """# Decisions

Choices that a newcomer would question: status, context, decision, consequences, in at most 150 words. To add one, take
the next free number of its group, write `NNNN-what-was-decided.md` like the others, and run
`scripts/index_decisions.py`, which writes this page.
"""


class Record(NamedTuple):
    """One record; `status` is accepted, or replaced by another."""

    number: int
    title: str
    name: str
    status: str


def records(folder: Path = FOLDER) -> list[Record]:
    """Every record, in order; one without a proper heading or status is refused."""
    found = []
    paths = sorted(folder.glob("[0-9]*.md"))
    numbers = {path.name[:4] for path in paths}
    for path in paths:
        heading, _, status, *_ = [*path.read_text(encoding="utf-8").splitlines(), "", "", ""]
        match, state = TITLE.fullmatch(heading), STATUS.fullmatch(status)
        if match is None or int(match[1]) != int(path.name[:4]):
            raise ValueError(f"{path.name} begins with {heading!r}, not with '# {path.name[:4]} Title'")
        if state is None or (state[2] is not None and state[2] not in numbers - {path.name[:4]}):
            raise ValueError(f"{path.name} has the status {status!r}, not '*Accepted.*' or '*Replaced by NNNN.*'")
        found.append(Record(int(match[1]), match[2], path.name, state[1].lower()))
    return found


def index(folder: Path = FOLDER) -> str:
    """The page."""
    lines = [HEAD]
    group = -1
    for record in records(folder):
        if record.number // 10 != group:
            group = record.number // 10
            lines.append(f"\n## {GROUPS.get(group, f'{group}0 and on')}\n\n")
        lines.append(f"- [{record.number:04d}]({record.name}) {record.title} ({record.status})\n")
    return "".join(lines)


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
