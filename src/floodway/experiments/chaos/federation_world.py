"""A small federation: files, participants as processes that die on demand, and what must hold afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from floodway.agent.federation.credentials import Credentials
from floodway.agent.federation.leases import LeaseStore
from floodway.agent.federation.participant import ParticipantAgent
from floodway.agent.federation.participant_journal import Journal, read_journal
from floodway.agent.federation.partners import Pace
from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import Federation, parse_federation
from floodway.contracts.participant_state import NegotiationTimes
from floodway.errors import FloodwayError
from floodway.experiments.chaos.kills.processes import ForkedJob, Job
from floodway.experiments.chaos.log_engine import LogEngine
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.status.parts import ParticipantPart
from floodway.job.status.status import Status, read_status
from floodway.job.store.store import LocalStore
from floodway.spark.log import LogReader, LogWriter, create_log

FILE = """
version: 1
participants:
  A: {{url: "http://127.0.0.1:{a}", cpu: 1.0}}
  B: {{url: "http://127.0.0.1:{b}", cpu: 1.0}}
contracts:
  A<->B: {{price: 4.0, kinds: [sum]}}
fragments:
  f0: {{owner: A, run: sum, logs: {{input: logs/f0}}, parameters: {{cpu: 0.6}}}}
  f1: {{owner: A, run: sum, logs: {{input: logs/f1}}, parameters: {{cpu: 0.6}}}}
"""
FAST = Pace(
    tick=0.02, measure=0.1, lease=1.0, margin=0.2, bill=0.5, message=2.0, move=3.0, failed_move=0.3, patience=1.0
)
SETTINGS = NegotiationTimes(period_seconds=0.2, answer_seconds=1.0, arrival_seconds=5.0, wake_seconds=1.0)
LATE_SECONDS = 60.0
"""How long after its end a period is billed at most: when the lease was renewed, a third of its length later; and as
long as a busy machine may hold up the taker."""


class BrokenPromiseError(FloodwayError):
    """What must hold after a fault, and does not."""


def must(holds: bool, words: object) -> None:
    """Raise unless a promise holds."""
    if not holds:
        raise BrokenPromiseError(str(words))


def agent(
    federation: Federation,
    name: str,
    root: Path,
    at: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.time,
    pace: Pace = FAST,
    lease_seconds: float = FAST.lease,
    credentials: Credentials | None = None,
) -> ParticipantAgent:
    """A participant on the engine without Spark; its leases are good for so long, however often they are renewed."""
    store = LeaseStore(root / "shared", seconds=lease_seconds)
    url = urlsplit(federation.members[name].url)
    return ParticipantAgent(
        federation,
        name,
        root / name,
        store,
        LogEngine(root / "shared", store.checkpoint),
        credentials=credentials,
        listen=(url.hostname or "", url.port or 0),
        settings=SETTINGS,
        pace=pace,
        clock=clock,
        at=at,
    )


def struck_at(kill_at: str | None) -> Callable[[str], None]:
    """What ends this process at a step as kill -9 does, or holds it up once (`STEP!stop`)."""
    name_of, _, how = (kill_at or "").partition("!")
    held: list[str] = []

    def at(step: str) -> None:
        if step == name_of and how == "stop":
            if not held:
                held.append(step)
                os.kill(os.getpid(), signal.SIGSTOP)
        elif step == name_of:
            os._exit(9)

    return at


def run_participant(text: str, name: str, root: str, kill_at: str | None) -> None:
    """The body of a participant's process; `kill_at` as in `struck_at`."""
    member = agent(parse_federation(text), name, Path(root), struck_at(kill_at))
    member.start()
    member.run()


@dataclass
class FederationWorld:
    """Shared storage with fed logs, and the processes of the participants."""

    step_seconds: ClassVar[float] = 600.0
    """How long something may take before it counts as missing; nothing waits that long for nothing."""

    root: Path
    text: str = ""
    processes: dict[str, Job] = field(default_factory=dict)
    fed: dict[str, int] = field(default_factory=dict)
    balanced_at: float = float("inf")
    """When the books were last seen to agree."""

    def __post_init__(self) -> None:
        a, b = free_ports(2)
        self.text = self.text or FILE.format(a=a, b=b)
        self.federation = parse_federation(self.text)
        self.store = LeaseStore(self.root / "shared", seconds=FAST.lease)
        for name in self.federation.fragments:
            create_log(self.log(name), "id bigint")
            self.fed[name] = 0

    def survives_a_kill(self, step: str, patience_seconds: float) -> None:
        """Kill the side that comes to this step of a move, start it again, and see that nothing is lost or doubled."""
        victim, survivor = ("A", "B") if step.startswith("giver") else ("B", "A")
        with self.feeding():
            process = self.start(victim, kill_at=step)
            self.start(survivor)
            process.ended(patience_seconds)
            must(process.exit_code == 9, f"{victim} never came to {step}: {self.statuses()}")
            self.start(victim)
            self._settles()
        self._checks()

    def survives_a_stop(self, step: str, hold_seconds: float) -> None:
        """Hold up the side that comes to this step, for longer than its lease; it finds out and lets go."""
        victim, survivor = ("A", "B") if step.startswith("giver") else ("B", "A")
        with self.feeding():
            process = self.start(victim, kill_at=f"{step}!stop")
            self.start(survivor)
            self.wait(f"{victim} at {step}", lambda: _is_stopped(process.pid), alive=(survivor,))
            time.sleep(hold_seconds)
            os.kill(process.pid, signal.SIGCONT)
            self._settles()
        self._checks()

    def _settles(self) -> None:
        self.wait("one fragment at each", self.settled, alive=("A", "B"))
        self.wait("a payment in both books", self.agreed, alive=("A", "B"))

    def _checks(self) -> None:
        self.wait("all results", self.caught_up, alive=("A", "B"))
        self.wait("books without an open entry", self.balanced, alive=("A", "B"))
        self.end()
        self.check_results()
        self.check_books()

    def body(self) -> Callable[[str, str, str, str | None], None]:
        """What a participant's process runs."""
        return run_participant

    def log(self, fragment: str) -> Path:
        """The input of a fragment."""
        return self.root / "shared" / "logs" / fragment

    def start(self, name: str, kill_at: str | None = None) -> Job:
        """A participant's process."""
        arguments = (self.text, name, str(self.root), kill_at)
        process = self.processes[name] = ForkedJob(self.body(), arguments, self.root / f"{name}.txt")
        return process

    def feed(self, count: int = 10) -> None:
        """Append so many tuples to each log."""
        for fragment, first in self.fed.items():
            with LogWriter(self.log(fragment), sync=False) as writer:
                writer.append(pa.table({"id": list(range(first, first + count))}))
            self.fed[fragment] = first + count

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """A hundred tuples a second keep coming to each log while something happens, however busy the machine is."""
        stop = threading.Event()
        began, before = time.monotonic(), max(self.fed.values())

        def work() -> None:
            while not stop.wait(0.1):
                due = int(100 * (time.monotonic() - began)) - (max(self.fed.values()) - before)
                self.feed(due // 10 * 10)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def wait(self, what: str, condition: Callable[[], bool], *, alive: Sequence[str] = ()) -> None:
        """Wait for a state, while these processes live."""
        deadline = time.monotonic() + self.step_seconds
        while not condition():
            for name in alive:
                process = self.processes[name]
                must(process.running, f"{name} died while waiting for {what}: {process.said()}")
            must(time.monotonic() < deadline, f"{what} did not happen: {self.statuses()}")
            time.sleep(0.02)

    def owners(self) -> dict[str, str]:
        """Who holds each fragment, by the leases."""
        leases = {name: self.store.current(name) for name in self.federation.fragments}
        return {name: lease.owner for name, lease in leases.items() if lease is not None}

    def statuses(self) -> dict[str, Status]:
        """What the participants say of themselves."""
        found = {name: read_status(LocalStore(self.root / name)) for name in self.federation.members}
        return {name: status for name, status in found.items() if status is not None}

    def part(self, name: str) -> ParticipantPart:
        """What only a participant has in its status."""
        return part_of(self.statuses()[name])

    def running(self) -> dict[str, list[str]]:
        """What each participant says that it runs."""
        return {name: sorted(self.part(name).fragments) for name in self.statuses()}

    def written(self, fragment: str) -> list[dict[str, int]]:
        """The results of a fragment."""
        path = self.root / "shared" / "outputs" / fragment
        if not (path / "meta.json").exists():
            return []
        reader = LogReader(path)
        batches = list(reader.read(0, 0, reader.end_positions()[0]))
        return [row for batch in batches for row in batch.drop_columns(["_arrival"]).to_pylist()]

    def settled(self) -> bool:
        """Whether one fragment is at each of A and B, as leases and processes agree."""
        owners, running = self.owners(), self.running()
        return sorted(owners.values()) == ["A", "B"] and all(
            running.get(owner) == [name] for name, owner in owners.items()
        )

    def caught_up(self) -> bool:
        """Whether every input has a result."""
        return all(len(self.written(name)) >= count for name, count in self.fed.items())

    def check_results(self) -> None:
        """Equal to an unmoved run, to the tuple: every input once, the running sum without a break."""
        for name, count in self.fed.items():
            unmoved = [{"id": one, "total": one * (one + 1) // 2} for one in range(count)]
            must(self.written(name) == unmoved, f"the results of {name} are not those of an unmoved run")

    def check_books(self) -> None:
        """No move is left open, both sides hold the same entries, and what one paid the other earned.

        Only what became due after the books were last seen to agree may be with the taker alone; and with the giver,
        what a taker owes that has not come back.
        """
        journals = {name: read_journal(self.root / name) for name in self.federation.members}
        try:
            still = {name: journal.open_moves() for name, journal in journals.items() if journal.open_moves()}
            must(not still, f"moves are open: {still}")
            books = {name: {one.entry.id: one for one in book.entries()} for name, book in journals.items()}
            for key in {key for found in books.values() for key in found}:
                sides = {name: found[key] for name, found in books.items() if key in found}
                if len(sides) == 2:
                    one, other = sides.values()
                    agreed = one.entry == other.entry and not one.disputed and not other.disputed
                    must(agreed, f"the two sides do not agree on {key}")
                else:
                    ((name, one),) = sides.items()
                    giver_alone = key.endswith("/outage")
                    late = one.entry.at >= self.balanced_at - LATE_SECONDS
                    mine = late and self._role(journals[name], one.move) == "taker"
                    alone = not one.agreed and not one.disputed and (giver_alone or mine)
                    must(alone, f"{name} alone has {key}")
        finally:
            for journal in journals.values():
                journal.close()

    def _role(self, journal: Journal, move: str) -> str | None:
        row = journal.move(move)
        return None if row is None else row.role

    def agreed(self) -> bool:
        """Whether something was paid that both books hold."""
        with self._journals() as journals:
            return all(any(one.agreed for one in journal.entries()) for journal in journals)

    def balanced(self) -> bool:
        """Whether no move is open and every entry is in both books: so it must come to be, whatever happened."""
        now = time.time()
        with self._journals() as journals:
            found = all(not journal.open_moves() and not journal.entries(agreed=False) for journal in journals)
        self.balanced_at = now if found else self.balanced_at
        return found

    @contextmanager
    def _journals(self) -> Iterator[list[Journal]]:
        journals: list[Journal] = []
        try:
            journals += [read_journal(self.root / name) for name in self.federation.members]
            yield journals
        finally:
            for journal in journals:
                journal.close()

    def end(self) -> None:
        """Kill every process."""
        for process in self.processes.values():
            process.end()
        self.processes.clear()


def part_of(status: Status) -> ParticipantPart:
    """What only a participant has in its status."""
    if status.participant is None:
        raise BrokenPromiseError(f"{status.name} has no status of a participant")
    return status.participant


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


AnyWorld = TypeVar("AnyWorld", bound=FederationWorld)


def try_point(
    trial: Trial,
    result: FaultResult,
    point: object,
    make: Callable[[Path], AnyWorld],
    survives: Callable[[AnyWorld], None],
) -> None:
    """One point of a campaign in a federation of its own."""
    trial.progress(result.tried / trial.points, str(point))
    folder = trial.folder / str(result.tried)
    folder.mkdir(parents=True)
    world = make(folder)
    try:
        survives(world)
    except FloodwayError as error:
        result.differences.append(f"{point}: {error}")
    finally:
        world.end()
    result.tried += 1
    result.detail.setdefault("points", []).append(str(point))
    shutil.rmtree(folder, ignore_errors=True)
