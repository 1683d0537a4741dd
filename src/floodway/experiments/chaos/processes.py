"""Processes under attack: a job in a session of its own, found by their commands, killed or held up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

HANG_SECONDS = 240.0
"""A bound for what hangs, not an expectation: a driver whose Java is gone ends within seconds on a quiet machine."""


class Job:
    """A command of `floodway`, or a module, in a session of its own: nothing of it outlives the campaign."""

    def __init__(self, arguments: Sequence[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether its first process runs."""
        return self.process.poll() is None

    def members(self) -> dict[int, str]:
        """Every process of the session, by id, with its command."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    # After the name in brackets: state, parent, group, session.
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.process.pid and fields[0] != "Z":
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                        found[int(entry.name)] = command.decode(errors="replace")
        return found

    def find(self, target: str) -> list[int]:
        """The processes of one kind: `driver`, `java`, `worker` (forked by pyspark's daemon), or all (`group`)."""
        members = self.members()
        if target == "group":
            return list(members)
        if target == "driver":
            return [self.process.pid] if self.running else []
        if target == "java":
            return [pid for pid, command in members.items() if "org.apache.spark.deploy.SparkSubmit" in command]
        # The daemon and those it forked have the same command; the workers are those whose parent is one of them.
        alike = {pid for pid, command in members.items() if "worker_daemon" in command or "pyspark.daemon" in command}
        return [pid for pid in alike if _parent(pid) in alike]

    def strike(self, target: str, number: signal.Signals, hold_seconds: float) -> list[int]:
        """Send the signal to all of a kind; a stop is taken back after a while. Those that were hit."""
        hit = self.find(target)
        for pid in hit:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(hold_seconds)
            for pid in hit:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return hit

    def ended(self, seconds: float = HANG_SECONDS) -> bool:
        """Wait for its end; False if it hangs."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return not self.running

    def said(self, most: int = 600) -> str:
        """The end of what it printed."""
        return " ".join(self._errors.read_text(errors="replace").split())[-most:]

    def end(self) -> None:
        """Kill all of it, and wait until nothing of it is left."""
        while members := self.members():
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
