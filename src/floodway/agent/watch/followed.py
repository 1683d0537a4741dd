"""What a running job writes, followed as it grows: its ledger and its batches, read once and summed up.

A file is read on from where the last look ended. One that was removed and written anew (a second run in the same
folder) is another file, although it has the same name: everything of the job is then summed from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from floodway.agent.loop.run_files import BATCHES
from floodway.job.fold import Fold
from floodway.job.kept_lines import parsed
from floodway.job.latencies import Latencies
from floodway.job.ledger_tail import LedgerTail
from floodway.job.line_log import LineLog, open_log
from floodway.job.store import LocalStore

Take = Callable[[dict[str, Any]], None]


class LineTail:
    """Follows a log of lines: `advance` hands on the objects that were appended since."""

    def __init__(self, log: LineLog, take: Take) -> None:
        self._log = log
        self._take = take
        self._read = 0
        self._identity: str | None = None

    def advance(self) -> bool:
        """Read on, part by part; False, with nothing read, if the log is not the one that was read before."""
        identity = self._log.identity()
        if identity is None:  # not begun yet, or between two runs: what was read stays
            return True
        if self._identity not in (None, identity):
            return False
        self._identity = identity
        for position, part in self._log.read(self._read):
            for body in parsed(part):
                self._take(body)
            self._read = position
        return True


class Followed:
    """One job's files, in one folder or in one a node; `account` is None until there is a ledger.

    Not for several threads at once: whoever shares it has a lock.
    """

    def __init__(self) -> None:
        self._start_over()

    @property
    def account(self) -> Fold | None:
        """The sum of the ledgers; another object once they were started over."""
        return self._account if self._ledgers else None

    def advance(self, folders: Sequence[Path]) -> None:
        """Take in what was written since the last look, all of it where a file was replaced."""
        if not self._advance(folders):
            self._start_over()
            self._advance(folders)

    def _start_over(self) -> None:
        self._account = Fold()
        self.latencies = Latencies()
        self._ledgers: dict[Path, LedgerTail] = {}
        self._batches: dict[Path, LineTail] = {}

    def _advance(self, folders: Sequence[Path]) -> bool:
        for folder in folders:
            if folder not in self._ledgers:
                tail = LedgerTail(LocalStore(folder))
                if tail.identity() is not None:
                    self._ledgers[folder] = tail
            if folder not in self._batches:
                self._batches[folder] = LineTail(open_log(LocalStore(folder), BATCHES), self._take_batch)
        same = [tail.advance(self._account) for tail in self._ledgers.values()]
        return all(same) and all(tail.advance() for tail in self._batches.values())

    def _take_batch(self, body: dict[str, Any]) -> None:
        try:
            pairs = [(int(milliseconds), int(count)) for milliseconds, count in body["latencies"]]
            ended = float(body["ended_seconds"])
        except (ValueError, TypeError, KeyError):
            return
        self.latencies.add(ended, pairs)
