"""Every kind of file that outlives a process, as something that takes numbered entries and gives back what it holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from floodway.agent.federation.journal.journal import Journal
from floodway.agent.federation.leases import LeaseStore, MoveDecision
from floodway.errors import FloodwayError
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.store.kept_lines import KeptLines
from floodway.job.store.store import LocalStore
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.query_notes import QueryNotes, note_tasks, read_notes

MOST_ENTRIES = 40


class Kind(Protocol):
    """One kind of file, opened anew for every object."""

    def put(self, number: int) -> None:
        """Take an entry; once it has returned, the entry is acknowledged. Taking it again changes nothing."""

    def held(self) -> Counter[int]:
        """The entries that are there."""


class LedgerFiles:
    """A ledger: an entry is a batch."""

    def __init__(self, folder: Path) -> None:
        self._ledger = Ledger(LocalStore(folder))

    def put(self, number: int) -> None:
        """See `Kind`."""
        self._ledger.append([LedgerLine("q", number, "s", Reason.SHEDDER.value, 9, 4, 5)])

    def held(self) -> Counter[int]:
        """See `Kind`."""
        expected = ("missing", "torn")  # entries come in any order here, and a torn line is said to be torn
        for text in self._ledger.fold().differences():
            if not any(word in text for word in expected):
                raise FloodwayError(f"the ledger says: {text}")
        return Counter(line.batch for line in self._ledger.read())


class LogFiles:
    """An embedded log: an entry is a tagged append of three tuples, merged with its neighbours now and then."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log"

    def put(self, number: int) -> None:
        """See `Kind`."""
        create_log(self._path, "id bigint")
        with LogWriter(self._path, compact_every=8) as writer:
            writer.append(pa.table({"id": [3 * number, 3 * number + 1, 3 * number + 2]}), tag=f"q:s:{number}:0")

    def held(self) -> Counter[int]:
        """See `Kind`."""
        reader = LogReader(self._path)
        ids = Counter(
            row for batch in reader.read(0, 0, reader.end_positions()[0]) for row in batch.column("id").to_pylist()
        )
        return Counter({number // 3: count for number, count in ids.items()})


class KeptFiles:
    """Figures and plans: an entry is a line. Who repeats one after a crash looks first, as their readers do."""

    def __init__(self, folder: Path) -> None:
        self._lines = KeptLines(LocalStore(folder), "lines")

    def put(self, number: int) -> None:
        """See `Kind`."""
        if number not in self.held():
            self._lines.append([{"number": number}])

    def held(self) -> Counter[int]:
        """See `Kind`."""
        return Counter(int(line["number"]) for line in self._lines.read())


class SmallFiles:
    """Files that are replaced whole (decisions, modes, journals of control planes): the newest entry stands for all."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def put(self, number: int) -> None:
        """See `Kind`."""
        self._store.write("state.json", json.dumps({"number": max(number, self._newest())}).encode())

    def held(self) -> Counter[int]:
        """See `Kind`."""
        return Counter(range(self._newest() + 1))

    def _newest(self) -> int:
        found = self._store.read("state.json")
        return -1 if found is None else int(json.loads(found)["number"])


class NoteFiles:
    """What is kept inside a checkpoint: written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "checkpoint"

    def put(self, number: int) -> None:
        """See `Kind`."""
        note_tasks(self._folder, 7)

    def held(self) -> Counter[int]:
        """See `Kind`."""
        notes = read_notes(self._folder)
        return (
            Counter(range(MOST_ENTRIES)) if notes.tasks == 7 else Counter() if notes == QueryNotes() else Counter([-1])
        )


class JournalFile:
    """A participant's journal (SQLite): an entry is a lease on record."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.sqlite"

    def put(self, number: int) -> None:
        """See `Kind`."""
        with closing(Journal(self._path, "A")) as journal:
            journal.leased("f", number, "A", float(number), "own")

    def held(self) -> Counter[int]:
        """See `Kind`."""
        with closing(Journal(self._path, "A")) as journal:
            return Counter(int(row["epoch"]) for row in journal.leases())


class DecisionFiles:
    """How moves were decided, on shared storage: an entry is a file that is made once."""

    def __init__(self, folder: Path) -> None:
        self._store = LeaseStore(folder)

    def put(self, number: int) -> None:
        """See `Kind`."""
        wanted = MoveDecision(f"A/{number}", "A", "B", taken=True, at=float(number), price=1.0, epochs={}, units={})
        if self._store.decide(wanted) != wanted:
            raise FloodwayError(f"move {number} was decided otherwise")

    def held(self) -> Counter[int]:
        """See `Kind`."""
        return Counter(number for number in range(2 * MOST_ENTRIES) if self._store.decision(f"A/{number}") is not None)


KINDS: dict[str, Callable[[Path], Kind]] = {
    "ledger": LedgerFiles,
    "log": LogFiles,
    "lines": KeptFiles,
    "small": SmallFiles,
    "notes": NoteFiles,
    "journal": JournalFile,
    "decisions": DecisionFiles,
}
