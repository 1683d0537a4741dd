"""Processes kept alive: started together, restarted when they die, ended together with all that they started.

Every child leads a process group of its own. When it ends, for whatever reason, what is left of its group is killed
before it is started again: a new driver must never meet the Java process of the old one. A child that dies soon after
its start is started again later and later: 0.5 s, doubled each time, at most 10 s.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from floodway.job.store.store import make_folder

FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 10.0
MOST_DOUBLINGS = 10
"""More than the last back-off needs, and few enough for a number to hold."""
STEADY_SECONDS = 30.0
"""A child that lived this long is taken to be well: its next restart does not wait longer for the ones before."""
GRACE_SECONDS = 25.0
OUTPUT_BYTES = 16 << 20
"""What a program printed is moved to FILE.1 when it is longer than this, in place of what was there."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to keep running: a name, a command, and the file that takes what it prints."""

    name: str
    command: tuple[str, ...]
    output: Path


class _Child:
    def __init__(self, program: ProcessSpec, clock: Callable[[], float]) -> None:
        self.program = program
        self.restarts = 0
        self._clock = clock
        self._early_deaths = 0
        self._start_at = 0.0
        self._started = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        make_folder(self.program.output.parent)
        with self.program.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.program.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = self._clock()

    def poll(self) -> bool:
        """Restart it if it has died and its time has come; whether it was restarted now."""
        now = self._clock()
        self._rotate()
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self.sweep()
            self._died(now, early=now - self._started < STEADY_SECONDS)
            self.process = None
        if now < self._start_at:
            return False
        try:
            self.start()
        except OSError:  # no room for what it prints, no memory for a process: no reason to end the others
            self._died(now, early=True)
            return False
        self.restarts += 1
        return True

    def _died(self, now: float, *, early: bool) -> None:
        self._early_deaths = self._early_deaths + 1 if early else 1
        doublings = min(self._early_deaths - 1, MOST_DOUBLINGS)
        self._start_at = now + min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0**doublings)

    def _rotate(self) -> None:
        """Move what it has printed aside when that is much; it goes on to append to the emptied file."""
        output = self.program.output
        with suppress(OSError):  # what is printed is no reason to stop anything
            if output.stat().st_size > OUTPUT_BYTES:
                shutil.copyfile(output, output.with_suffix(f"{output.suffix}.1"))
                os.truncate(output, 0)

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def end(self, deadline: float) -> None:
        """Wait until the deadline, then kill; nothing of its group is left afterwards."""
        if self.process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - self._clock()))
        self.sweep()
        self.process.wait()
        self.process = None

    def sweep(self) -> None:
        """Kill what is left of the child's process group."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Supervisor:
    """Keeps programs running from `start` to `stop`; call `poll` often."""

    def __init__(self, programs: Sequence[ProcessSpec], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._children = {program.name: _Child(program, clock) for program in programs}

    def start(self) -> None:
        """Start all."""
        for child in self._children.values():
            child.start()

    def poll(self) -> list[str]:
        """Restart what has died, when its time has come; the names of those restarted now."""
        return [name for name, child in self._children.items() if child.poll()]

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask all to end, wait, then kill what has not."""
        for child in self._children.values():
            child.terminate()
        deadline = self._clock() + grace_seconds
        for child in self._children.values():
            child.end(deadline)

    def pid(self, name: str) -> int | None:
        """The process that runs a program now."""
        process = self._children[name].process
        return None if process is None else process.pid

    @property
    def restarts(self) -> dict[str, int]:
        """How often each was started again."""
        return {name: child.restarts for name, child in self._children.items()}

    def last_words(self, name: str, most: int = 2000) -> str:
        """The end of what a program printed."""
        output = self._children[name].program.output
        text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        return text[-most:].strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
