"""The state of a job read as it grows: its ledger and its batches, each line once, added up.

A ledger that was removed and written anew (a second run in the same folder) is another ledger, although it has the same
name: everything of the job is then read from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from floodway.job.batches import BatchReader
from floodway.job.figures import Figures
from floodway.job.ledger_line import LedgerLine
from floodway.job.store import LocalStore

LEDGER = "ledger.jsonl"
PART_BYTES = 4 * 2**20
HEAD_BYTES = 256
"""How much of a file's beginning tells it from another: a first line holds the time and the name of its query."""

Take = Callable[[list[bytes]], None]


class LineTail:
    """Follows a file of lines: `advance` hands on whatever whole lines were appended since; a torn last one waits."""

    def __init__(self, path: Path, take: Take) -> None:
        self._path = path
        self._take = take
        self._read = 0
        self._head = b""

    def advance(self) -> bool:
        """Read on, part by part; False, with nothing read, if the file is not the one that was read before."""
        try:
            with self._path.open("rb") as file:
                # By what is in it, as well as by its size: the number of a removed file is soon given out again.
                if file.read(len(self._head)) != self._head or file.seek(0, 2) < self._read:
                    return False
                file.seek(self._read)
                rest = b""
                while part := file.read(PART_BYTES):
                    rest = self._lines(rest + part)
        except OSError:  # not there yet, or between two runs: what was read stays
            pass
        return True

    def _lines(self, raw: bytes) -> bytes:
        whole = raw.rfind(b"\n") + 1
        if whole:
            self._head += raw[: min(whole, HEAD_BYTES)] if not self._head else b""
            self._read += whole
            self._take(raw[:whole].splitlines())
        return raw[whole:]


class JobTail:
    """One job's state, in one folder or in one per node; `figures` is another object once it was started over.

    Not for several threads at once: whoever shares it has a lock.
    """

    def __init__(self) -> None:
        self._start_over()

    @property
    def has_ledger(self) -> bool:
        """Whether there is a ledger to add up."""
        return bool(self._ledgers)

    def last_batches(self, folder: Path) -> dict[str, int]:
        """The number of the latest batch of every query on record in a folder."""
        return self._batches[folder].last if folder in self._batches else {}

    def advance(self, folders: Sequence[Path]) -> None:
        """Take in what was written since the last look, all of it where a file was replaced."""
        if not self._advance(folders):
            self._start_over()
            self._advance(folders)

    def _start_over(self) -> None:
        self.figures = Figures()
        self._ledgers: dict[Path, LineTail] = {}
        self._batches: dict[Path, BatchReader] = {}

    def _advance(self, folders: Sequence[Path]) -> bool:
        for folder in folders:
            ledger = folder / LEDGER
            if ledger not in self._ledgers and ledger.exists():
                self._ledgers[ledger] = LineTail(ledger, self._take)
            reader = self._batches.setdefault(folder, BatchReader(LocalStore(folder)))
            batches = reader.advance()
            if batches is None:
                return False
            for batch in batches:
                self.figures.add_batch(batch)
        return all(tail.advance() for tail in self._ledgers.values())

    def _take(self, stored: list[bytes]) -> None:
        lines = []
        for raw in stored:
            try:
                lines.append(LedgerLine.decode(raw))
            except ValueError:
                self.figures.fold.unreadable += 1
        self.figures.fold.add(lines)


def read_figures(folder: Path) -> tuple[Figures, dict[str, int]]:
    """All that is on record of a job, and the number of the latest batch of each of its queries: where it goes on."""
    tail = JobTail()
    tail.advance([folder])
    return tail.figures, tail.last_batches(folder)
