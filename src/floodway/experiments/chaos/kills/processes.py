"""Processes under attack: a job in a session of its own, found by their commands, killed or held up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

HANG_SECONDS = 600.0
"""A bound for what hangs, not an expectation: a driver whose Java is gone ends within seconds on a quiet machine."""


Strike = Callable[[signal.Signals, float], list[int]]
"""Sends a signal to something beside the job, such as a broker, and brings it back after so many seconds."""


class Job(ABC):
    """A process in a session of its own, with all that it starts: nothing of it outlives the campaign."""

    def __init__(self, errors: Path, others: Mapping[str, Strike] | None = None) -> None:
        self._errors = errors
        self._others = others or {}

    @property
    @abstractmethod
    def pid(self) -> int:
        """The first process, which gives the session its number."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether its first process runs."""

    @abstractmethod
    def ended(self, seconds: float = HANG_SECONDS) -> bool:
        """Wait for its end; False if it hangs."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """How its first process ended; None while it runs."""

    def members(self) -> dict[int, str]:
        """Every process of the session, by id, with its command."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    # After the name in brackets: state, parent, group, session.
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.pid and fields[0] != "Z":
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                        found[int(entry.name)] = command.decode(errors="replace")
        return found

    def find(self, target: str) -> list[int]:
        """The processes of one kind, or all (`group`).

        `driver`, `java` (that of the driver), `executor` (its Java), `worker` (forked by pyspark's daemon).
        """
        members = self.members()
        if target == "group":
            return list(members)
        if target == "driver":
            return [self.pid] if self.running else []
        if target == "java":
            return [pid for pid, command in members.items() if "org.apache.spark.deploy.SparkSubmit" in command]
        if target == "executor":
            return [pid for pid, command in members.items() if "CoarseGrainedExecutorBackend" in command]
        # The daemon and those it forked have the same command; the workers are those whose parent is one of them.
        alike = {pid for pid, command in members.items() if "worker_daemon" in command or "pyspark.daemon" in command}
        return [pid for pid in alike if _parent(pid) in alike]

    def strike(self, target: str, number: signal.Signals, hold_seconds: float) -> list[int]:
        """Send the signal to all of a kind; a stop is taken back after a while. Those that were hit."""
        if target in self._others:
            return self._others[target](number, hold_seconds)
        if number == signal.SIGSTOP:
            with self.held(target) as held:
                time.sleep(hold_seconds)
            return held
        hit = self.find(target)
        _send(hit, number)
        return hit

    @contextmanager
    def held(self, target: str) -> Iterator[list[int]]:
        """Stop all of a kind for a while; those that are stopped."""
        hit = self.find(target)
        _send(hit, signal.SIGSTOP)
        try:
            yield hit
        finally:
            _send(hit, signal.SIGCONT)

    def said(self, most: int = 600) -> str:
        """The end of what it printed."""
        text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
        return " ".join(text.split())[-most:]

    def end(self) -> None:
        """Kill all of it, and wait until nothing of it is left."""
        while members := self.members():
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.ended(0.05)
        self.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class CommandJob(Job):
    """A command of `floodway`, or a module; `variables` are added to the environment."""

    def __init__(
        self,
        arguments: Sequence[str],
        errors: Path,
        others: Mapping[str, Strike] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(errors, others)
        with errors.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def ended(self, seconds: float = HANG_SECONDS) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.running


class ForkedJob(Job):
    """A function in a process that is forked from one that has imported it: a start costs milliseconds."""

    def __init__(
        self,
        function: Callable[..., None],
        arguments: Sequence[Any],
        errors: Path,
        others: Mapping[str, Strike] | None = None,
    ) -> None:
        super().__init__(errors, others)
        context = get_context("forkserver")
        context.set_forkserver_preload([function.__module__])
        self._process = context.Process(target=_in_session, args=(function, arguments, str(errors)))
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def ended(self, seconds: float = HANG_SECONDS) -> bool:
        self._process.join(seconds)
        return not self.running

    def end(self) -> None:
        """See `Job`; one that is killed before it has made its session is ended as well."""
        self._process.kill()
        super().end()


def _in_session(function: Callable[..., None], arguments: Sequence[Any], errors: str) -> None:
    os.setsid()
    output = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, sys.stderr.fileno())
    function(*arguments)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
