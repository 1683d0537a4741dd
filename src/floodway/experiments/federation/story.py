"""Three participants as processes of their own, with logs fed to a script: what `federation_fig13` runs and watches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

import floodway
from floodway.agent.federation.leases import LeaseStore
from floodway.contracts.federation_file import Federation
from floodway.errors import FloodwayError, InputError
from floodway.job.status.parts import MovePart, ParticipantPart
from floodway.job.status.status import read_status
from floodway.job.store.store import LocalStore
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.journal import committed_batches, journaled_batches, read_batch

CHECKOUT = Path(floodway.__file__).parents[2]
CATALOGUE = "examples.intrusion_catalogue"
FEED_SECONDS = 0.25
_START_SECONDS = 600.0
_DRAIN_SECONDS = 300.0


class StoryError(FloodwayError):
    """A participant died or did not get ready: there is no story to tell."""


def example(module: str) -> Any:
    """A module of the checkout's examples; the installed package has none."""
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    try:
        return import_module(f"examples.{module}")
    except ImportError:
        raise InputError(
            f"examples/{module}.py is not beside this installation", hint="Run it from a checkout of the project"
        ) from None


@dataclass
class Feeding:
    """Replays a table into a log at a rate that may change; `rate` in tuples/s."""

    log: Path
    table: pa.Table
    rate: float = 0.0
    fed: int = 0
    _due: float = 0.0
    _writer: LogWriter | None = None

    def feed(self, seconds: float) -> None:
        """Append what has become due since the last call."""
        if self._writer is None:
            # Merging small segments takes seconds on a busy machine, in which nothing would arrive.
            self._writer = LogWriter(self.log, sync=False, compact_every=0)
        self._due += self.rate * seconds
        count = min(int(self._due), self.table.num_rows - self.fed)
        if count > 0:
            self._writer.append(self.table.slice(self.fed, count))
            self.fed += count
            self._due -= count

    def close(self, last: pa.Table | None = None) -> None:
        """Append a last tuple, if one is given, and let go of the log."""
        if self._writer is not None:
            if last is not None:
                self._writer.append(last)
            self._writer.close()
            self._writer = None


@dataclass
class Sample:
    """The participants at one moment: load as declared and CPU-seconds used so far, by name; the moves done so far."""

    at: float
    load: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    moves: int


@dataclass(frozen=True, slots=True)
class Handover:
    """Seconds from the end of the last batch at the giver until the first at the taker was cut, and until it ended."""

    cut: float
    committed: float | None


@dataclass
class Story:
    """Participants as processes, a clock that starts when all are ready, and what was seen."""

    root: Path
    text: str
    federation: Federation
    schema: str
    options: Sequence[str] = ()
    samples: list[Sample] = field(default_factory=list)
    feeds: dict[str, Feeding] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _began: float = 0.0

    @property
    def shared(self) -> Path:
        """The storage that all participants see."""
        return self.root / "shared"

    def __enter__(self) -> Self:
        for spec in self.federation.fragments.values():
            for log in spec.logs.values():
                create_log(self.shared / log, self.schema)
        file = self.root / "federation.yaml"
        file.write_text(self.text, encoding="utf-8")
        for name in self.federation.members:
            command = [sys.executable, "-m", "floodway.cli.main", "participant", str(file), "--name", name]
            command += ["--state", str(self.root / name), "--shared", str(self.shared)]
            # Results are compared to the tuple, however busy the machine is: nothing is dropped.
            command += ["--catalogue", CATALOGUE, "--mode", "observe", *self.options]
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
            }
            with (self.root / f"{name}.log").open("wb") as output:
                self._processes[name] = subprocess.Popen(
                    command, stdout=output, stderr=output, start_new_session=True, cwd=CHECKOUT, env=environment
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.feeds.values():
            one.close()
        self.stop()

    def stop(self) -> None:
        """Ask all to stop at a batch boundary; whoever does not is killed with all it started."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(120.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()

    def wait_ready(self) -> None:
        """Until every participant runs the fragments it owns."""
        wanted = {name: {one.name for one in self.federation.owned_by(name)} for name in self.federation.members}
        deadline = time.monotonic() + _START_SECONDS
        while any(not wanted[name] <= self.part(name).fragments.keys() for name in wanted):
            self._alive()
            if time.monotonic() > deadline:
                raise StoryError("not all participants are ready", hint=f"See the logs in {self.root}")
            time.sleep(0.5)
        self._began = time.monotonic()

    def play(self, least: float, most: float, until: Callable[[], bool]) -> None:
        """Feed for at least `least` seconds, and go on until something is so, but no longer than `most`."""
        began = last = time.monotonic()
        while (now := time.monotonic()) - began < most and (now - began < least or not until()):
            # Time that this process did not get is not made up for: a burst would be a story of its own.
            for one in self.feeds.values():
                one.feed(min(now - last, 2 * FEED_SECONDS))
            last = now
            self._alive()
            if not self.samples or now - self._began - self.samples[-1].at >= 1.0:
                load = {name: self.part(name).load for name in self.federation.members}
                used = {name: _cpu_seconds(process.pid) for name, process in self._processes.items()}
                self.samples.append(Sample(self.seconds(), load, used, len(self.moves())))
            time.sleep(max(0.0, FEED_SECONDS - (time.monotonic() - now)))

    def cores_used(self, name: str) -> float:
        """What a participant's processes took of a core, on the mean over the samples."""
        first, last = self.samples[0], self.samples[-1]
        return (last.cpu_seconds[name] - first.cpu_seconds[name]) / max(last.at - first.at, 1e-9)

    def seconds(self) -> float:
        """Since all were ready."""
        return time.monotonic() - self._began

    def part(self, name: str) -> ParticipantPart:
        """What a participant wrote last; empty before its first tick."""
        status = read_status(LocalStore(self.root / name))
        return (status.participant if status else None) or ParticipantPart(cpu=0.0, load=0.0)

    def moves(self) -> list[MovePart]:
        """Moves that were done, as their givers tell, in the order of time."""
        found = [
            move
            for name in self.federation.members
            for move in self.part(name).moves
            if move.giver == name and move.state == "done"
        ]
        return sorted(found, key=lambda move: move.at)

    def drain(self) -> None:
        """Until every fragment has committed all that is in its logs, and what its last tuple closed.

        The last tuple moves the watermark; the windows that this closes are written by a batch of their own, without
        tuples.
        """
        store = LeaseStore(self.shared)
        deadline = time.monotonic() + _DRAIN_SECONDS
        for spec in self.federation.fragments.values():
            (log,) = spec.logs.values()
            end = sum(LogReader(self.shared / log).end_positions().values())
            while not _drained(store.checkpoint(spec.name), end):
                self._alive()
                if time.monotonic() > deadline:
                    raise StoryError(f"fragment {spec.name} did not catch up", hint=f"See the logs in {self.root}")
                time.sleep(0.5)

    def pauses(self, move: MovePart) -> dict[str, float]:
        """Seconds from the last batch at the giver to the first at the taker, by fragment; asked for soon after."""
        return {fragment: found.cut for fragment in move.fragments if (found := self.handover(move, fragment))}

    def handover(self, move: MovePart, fragment: str) -> Handover | None:
        """Between the last batch at the giver and the first at the taker; None before that is cut, or long after."""
        checkpoint = LeaseStore(self.shared).checkpoint(fragment)
        for number in journaled_batches(checkpoint):
            cut = read_batch(checkpoint, number).timestamp_ms / 1e3
            if cut > move.at and (ended := _committed(checkpoint, number - 1)) is not None:
                first = _committed(checkpoint, number)
                return Handover(cut - ended, None if first is None else first - ended)
        return None

    def gaps(self, fragment: str) -> list[float]:
        """Seconds from the end of each batch that Spark still has to the cut of the next."""
        checkpoint = LeaseStore(self.shared).checkpoint(fragment)
        numbers = journaled_batches(checkpoint)[1:]
        ends = {number: _committed(checkpoint, number - 1) for number in numbers}
        return [
            read_batch(checkpoint, number).timestamp_ms / 1e3 - ended
            for number, ended in ends.items()
            if ended is not None
        ]

    def _alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                tail = (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-500:]
                raise StoryError(f"participant {name} ended with {process.returncode}: {tail}")


def _cpu_seconds(session: int) -> float:
    """CPU time of all processes of a session (Python, Java and its workers); of those that ended nothing is known."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _committed(checkpoint: Path, number: int) -> float | None:
    """When a batch was committed; None if it was not, or Spark has forgotten it."""
    try:
        return (checkpoint / "commits" / str(number)).stat().st_mtime
    except FileNotFoundError:
        return None


def _drained(checkpoint: Path, end: int) -> bool:
    """Whether a batch without tuples was committed after the one that came to this position of the log."""
    quiet = False
    for number in reversed(committed_batches(checkpoint)):
        offsets = read_batch(checkpoint, number).offsets
        if offsets:
            return quiet and sum(sum(offset.end.values()) for offset in offsets.values()) >= end
        quiet = True
    return False


def rows(path: Path) -> list[tuple[Any, ...]]:
    """The tuples of an output log without their arrival times, sorted."""
    reader = LogReader(path)
    found = [
        tuple(row[name] for name in reader.meta.schema.names)
        for partition, end in reader.end_positions().items()
        for batch in reader.read(partition, 0, end)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=str)
