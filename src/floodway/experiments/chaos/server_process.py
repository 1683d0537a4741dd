"""A server in a process of its own: start it, wait until it answers, kill it, start it again, end it."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from floodway.errors import FloodwayError

START_SECONDS = 300.0  # a bound for a broken start, not an expectation: a start takes a few seconds
STOP_SECONDS = 15.0


class ServerStartError(FloodwayError):
    """A server that did not start; carries the end of its log."""


class ServerProcess(ABC):
    """One server. Use it as a context manager, or call `start` and `stop`."""

    what: str
    """What it is, for messages."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What is to be run."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether clients can use it."""

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None, f"{self.what} does not run"
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerStartError(f"{self.what} did not start:\n{self.log_tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it in good order; kill it if that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End it as a crash would, in the middle of whatever it does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def wait(self) -> None:
        """Wait until the process ends."""
        if self._process is not None:
            self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The end of what the process printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
