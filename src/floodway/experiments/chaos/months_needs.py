"""What a start, an audit and the files of something need, and whether that grows with its age.

What is counted are bytes that this process asked the system for, and files, not seconds.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

SETTLED_MONTHS = 3
"""By then every kind of file has been rotated."""
SLACK = 1.5
"""A start that falls behind the end of a segment reads more than one that falls after a new one was begun."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a start, an audit and the folder needed at the end of a month."""

    start_bytes: int
    audit_bytes: int
    memory_bytes: int
    files: int
    disk_bytes: int


def grown(needs: list[Needs]) -> list[str]:
    """What a later month needs more of than the first months did.

    >>> grown([Needs(1, 1, 1, 1, 1)] * 3 + [Needs(9, 1, 1, 1, 1)])
    ['month 4: start_bytes is 9, and was at most 1 in the first 3']
    """
    told = []
    for name in ("start_bytes", "audit_bytes", "memory_bytes", "files", "disk_bytes"):
        most = max((getattr(one, name) for one in needs[:SETTLED_MONTHS]), default=0)
        told += [
            f"month {month}: {name} is {getattr(one, name)}, and was at most {most} in the first {SETTLED_MONTHS}"
            for month, one in enumerate(needs[SETTLED_MONTHS:], SETTLED_MONTHS + 1)
            if getattr(one, name) > SLACK * most
        ]
    return told


def needs_of(start: Callable[[], object], audit: Callable[[], object], folder: Path) -> Needs:
    """Start, then audit, and look at the files."""
    tracemalloc.start()
    started, start_bytes = read_by(start)
    memory_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del started
    _, audit_bytes = read_by(audit)
    files = [path for path in folder.rglob("*") if path.is_file()]
    disk_bytes = sum(path.stat().st_size for path in files)
    return Needs(start_bytes, audit_bytes, memory_bytes, len(files), disk_bytes)


def read_by(work: Callable[[], Result]) -> tuple[Result, int]:
    """What a function gives, and the bytes that it made this process read."""
    before = _bytes_read()
    found = work()
    return found, _bytes_read() - before


def _bytes_read() -> int:
    """Asked of the system by this process so far, from the cache of the disk or not."""
    line = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()[0]
    return int(line.removeprefix("rchar: "))
