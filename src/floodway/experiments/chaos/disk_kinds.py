"""Every kind of file that outlives a process, as something that takes numbered entries and gives back what it holds."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from floodway.agent.federation.leases import LeaseStore, MoveDecision
from floodway.agent.federation.participant_journal import Journal
from floodway.errors import FloodwayError
from floodway.job.decision import JobDecision, read_decision, write_decision
from floodway.job.ledger.audit_point import AuditedLedger, open_ledger
from floodway.job.ledger.backfill import BackfillStep, done_batches, noted_batches, recovered_lines, step_note
from floodway.job.ledger.facts import BatchFacts, FactsLog
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.places import ShedFiles
from floodway.job.status.batches import Batch, BatchLog, BatchReader
from floodway.job.status.status import ShedPart, Status, read_status, write_status
from floodway.job.store.lease import take
from floodway.job.store.line_log import SEGMENT_BYTES, KeptLines
from floodway.job.store.store import LocalStore
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.planning.factory import make_planner
from floodway.planning.plan_file import PlanFileError, load, save
from floodway.planning.program import Program
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.journal import QueryNotes, note_tasks, read_notes
from floodway.spark.shed.control_file import ControlTable
from floodway.spark.shed.control_table import Entry, Table
from floodway.spark.shed.state_copies import StateCopies

MOST_ENTRIES = 40


class Kind(Protocol):
    """One kind of file, opened anew for every object."""

    def put(self, number: int) -> None:
        """Take an entry; once it has returned, the entry is acknowledged. Taking it again changes nothing."""

    def held(self) -> Counter[int]:
        """The entries that are there."""


class LedgerFiles:
    """A ledger: an entry is a batch."""

    plan = ""

    def __init__(self, folder: Path) -> None:
        self._ledger = Ledger(LocalStore(folder))

    def put(self, number: int) -> None:
        self._ledger.append([LedgerLine("q", number, "s", Reason.SHEDDER.value, 9, 4, 5, self.plan)])

    def held(self) -> Counter[int]:
        expected = ["missing", "torn"]  # entries come in any order here, and a torn line is said to be torn
        if next(iter(self._ledger.segments()), 0):
            expected.append("are lost")  # the folder was removed under a writer that went on where it was
        for text in self._ledger.fold().differences():
            if not any(word in text for word in expected):
                raise FloodwayError(f"the ledger says: {text}")
        return Counter(line.batch for line in self._ledger.read())


class LogFiles:
    """An embedded log: an entry is a tagged append of three tuples, merged with its neighbours now and then."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log"

    def put(self, number: int) -> None:
        create_log(self._path, "id bigint")
        with LogWriter(self._path, compact_every=8) as writer:
            writer.append(pa.table({"id": [3 * number, 3 * number + 1, 3 * number + 2]}), tag=f"q:s:{number}:0")

    def held(self) -> Counter[int]:
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
        if number not in self.held():
            self._lines.append([{"number": number}])

    def held(self) -> Counter[int]:
        return Counter(int(line["number"]) for line in self._lines.read())


class NewestFile(ABC):
    """A file that is replaced whole: the newest entry stands for all."""

    def put(self, number: int) -> None:
        self.set_newest(max(number, self.newest()))

    def held(self) -> Counter[int]:
        return Counter(range(self.newest() + 1))

    @abstractmethod
    def set_newest(self, number: int) -> None:
        """Make this the newest entry."""

    @abstractmethod
    def newest(self) -> int:
        """The newest entry; -1 before the first."""


class SmallFiles(NewestFile):
    """Files such as modes and journals of control planes."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def set_newest(self, number: int) -> None:
        self._store.write("state.json", json.dumps({"number": number}).encode())

    def newest(self) -> int:
        found = self._store.read("state.json")
        return -1 if found is None else int(json.loads(found)["number"])


class DecisionFileCase(NewestFile):
    """What a run is to drop."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "decision.json"

    def set_newest(self, number: int) -> None:
        write_decision(self._path, JobDecision(salt=number + 1))

    def newest(self) -> int:
        return read_decision(self._path).salt - 1


class ControlFile(NewestFile):
    """What a shed is to drop."""

    def __init__(self, folder: Path) -> None:
        self._table = ControlTable(LocalStore(folder), lambda: 0, Entry(0, 0), {})

    def set_newest(self, number: int) -> None:
        self._table.put(replace(self._table.latest, salt=number + 1))

    def newest(self) -> int:
        return self._table.latest.salt - 1


class StatusFile(NewestFile):
    """What a job was when it last told; flushed, as it holds event times."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def set_newest(self, number: int) -> None:
        write_status(self._store, Status("s", "shed", "enforce", 1.0, shed=ShedPart("q", number, 1.0, seen_us=number)))

    def newest(self) -> int:
        found = read_status(self._store)
        return -1 if found is None or found.shed is None else found.shed.batch


class StateCopyFiles(NewestFile):
    """The copy of a shed's decisions in the checkpoint of its query."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = LocalStore(folder / "checkpoint")
        self._copies = StateCopies(ShedFiles(folder / "state"), "s", lambda: None)

    def set_newest(self, number: int) -> None:
        self._copies.begin("q", self._checkpoint, Table(Entry(number, 0)).encode())

    def newest(self) -> int:
        found = self._copies.read(self._checkpoint)
        return -1 if found is None else found.table.latest.seq


class PlanFile(NewestFile):
    """Saved plans; an entry is those of a network of its own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "plans"

    def set_newest(self, number: int) -> None:
        save(make_planner(self._network(number)), self._path)

    def newest(self) -> int:
        if not self._path.exists():
            return -1
        for number in reversed(range(MOST_ENTRIES + 5)):
            with suppress(PlanFileError):
                load(self._path, Program(self._network(number), 1.0))
                return number
        raise FloodwayError("the plans are of no network that was saved")

    @staticmethod
    def _network(number: int) -> Network:
        operators = {"o": Operator("o", "A", ("s",), cost=1.0)}
        return Network("n", {"s": Stream("s", 2.0 + number)}, {"A": Node("A")}, operators, {"q": Output("q", "o")})


class NoteFiles:
    """What is kept inside a checkpoint: written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "checkpoint"

    def put(self, number: int) -> None:
        note_tasks(self._folder, 7)

    def held(self) -> Counter[int]:
        notes = read_notes(self._folder)
        return (
            Counter(range(MOST_ENTRIES)) if notes.tasks == 7 else Counter() if notes == QueryNotes() else Counter([-1])
        )


class JournalFile:
    """A participant's journal (SQLite): an entry is a lease on record."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.sqlite"

    def put(self, number: int) -> None:
        with closing(Journal(self._path, "A")) as journal:
            journal.leased("f", number, "A", float(number), "own")

    def held(self) -> Counter[int]:
        with closing(Journal(self._path, "A")) as journal:
            return Counter(int(row["epoch"]) for row in journal.leases())


class MoveFiles:
    """How moves were decided, on shared storage: an entry is a file that is made once."""

    def __init__(self, folder: Path) -> None:
        self._store = LeaseStore(folder)

    def put(self, number: int) -> None:
        if not self._store.fragments():
            self._store.claim("f", "A", after=0, now=0.0)
        wanted = MoveDecision(f"A/{number}", "A", "B", taken=True, at=float(number), price=1.0, epochs={}, units={})
        if self._store.decide(wanted) != wanted:
            raise FloodwayError(f"move {number} was decided otherwise")

    def held(self) -> Counter[int]:
        tried = range(2 * MOST_ENTRIES) if self._store.fragments() else ()
        return Counter(number for number in tried if self._store.decision(f"A/{number}") is not None)


class LeaseFiles:
    """Who runs a fragment, on shared storage: an entry is a fragment that is claimed, and whose lease is renewed."""

    def __init__(self, folder: Path) -> None:
        self._store = LeaseStore(folder)

    def put(self, number: int) -> None:
        lease = self._store.current(f"f{number}") or self._store.claim(f"f{number}", "A", after=0, now=0.0)
        self._store.hold(lease, now=1.0)

    def held(self) -> Counter[int]:
        return Counter(int(name[1:]) for name in self._store.fragments() if self._store.current(name) is not None)


class AuditPointFile:
    """Up to which batch a ledger was audited: an entry is a batch and the audit after it."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)

    def put(self, number: int) -> None:
        Ledger(self._store).append([LedgerLine("q", number, "s", Reason.SHEDDER.value, 9, 4, 5)])
        audited = self._audited()
        audited.settle("q", audited.newest("q"))
        for text in audited.close([]):
            raise FloodwayError(text)

    def held(self) -> Counter[int]:
        audited = self._audited()
        if strange := [text for text in audited.unchecked if "from its start" not in text]:
            raise FloodwayError(f"the audit says: {strange[0]}")
        found = Counter(line.batch for line in Ledger(self._store).read())
        if audited.total("q", "s").offered != 9 * len(found):
            raise FloodwayError(
                f"the audit has counted {audited.total('q', 's').offered} tuples of {len(found)} batches"
            )
        return found

    def _audited(self) -> AuditedLedger:
        return open_ledger(self._store, full=False)


class BackfillFiles:
    """The journal of a backfill: an entry is a step that is noted, accounted for in the ledger, and done."""

    def __init__(self, folder: Path) -> None:
        self._store, self._ledger = LocalStore(folder), Ledger(LocalStore(folder))

    def put(self, number: int) -> None:
        raw = self._store.read("backfill/s.json")
        batches = {("q", number)} if raw is None else noted_batches(raw, "the note")
        for _, batch in sorted(batches | {("q", number)}):
            step = BackfillStep((BatchFacts("q", batch, 0, "enforce", 9, 4, 400_000, 7),))
            self._store.write("backfill/s.json", step_note(step))
            self._ledger.append(recovered_lines("s", step, [5], 0))
        self._store.remove("backfill/s.json")

    def held(self) -> Counter[int]:
        return Counter(batch for _, batch in done_batches(self._ledger.lines(), "s"))


class BatchFiles:
    """Figures of every batch: an entry is a batch."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)
        reader = BatchReader(self._store)
        reader.advance()
        self._log = BatchLog(self._store, reader.last)

    def put(self, number: int) -> None:
        self._log.append(Batch("q", number, float(number), number + 1.0))

    def held(self) -> Counter[int]:
        return Counter(batch.batch for batch in BatchReader(self._store).advance() or ())


class FactFiles:
    """What dropped tuples are found by: an entry is a batch."""

    def __init__(self, folder: Path) -> None:
        self._log = FactsLog(LocalStore(folder))

    def put(self, number: int) -> None:
        self._log.add(BatchFacts("q", number, 0, "enforce", 9, 4, 400_000, 7))

    def held(self) -> Counter[int]:
        return Counter(facts.batch for facts in self._log.read())


class LockFile:
    """Which process has a state: made anew by every process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "run.lock"

    def put(self, number: int) -> None:
        take(self._path, "Stop it").close()

    def held(self) -> Counter[int]:
        return Counter(range(MOST_ENTRIES)) if self._path.exists() else Counter()


class SegmentedLedger(LedgerFiles):
    """A ledger of lines so long that segments are closed, and their sums saved."""

    plan = "x" * (SEGMENT_BYTES // 8)


ONCE = ("notes", "lock")
"""Kinds whose entries are all one thing."""
KINDS: dict[str, Callable[[Path], Kind]] = {
    "ledger": LedgerFiles,
    "log": LogFiles,
    "lines": KeptFiles,
    "small": SmallFiles,
    "notes": NoteFiles,
    "journal": JournalFile,
    "moves": MoveFiles,
    "leases": LeaseFiles,
    "decision": DecisionFileCase,
    "control": ControlFile,
    "batches": BatchFiles,
    "facts": FactFiles,
    "plans": PlanFile,
    "lock": LockFile,
    "segments": SegmentedLedger,
    "status": StatusFile,
    "audit": AuditPointFile,
    "backfill": BackfillFiles,
    "copies": StateCopyFiles,
}
