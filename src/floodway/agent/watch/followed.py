"""What a running job writes, followed as it grows: its ledger and its batches, read once and summed up.

A file is read on from where the last look ended. One that was removed and written anew (a second run in the same
folder) is another file, although it has the same name: everything of the job is then summed from the start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from floodway.agent.loop.run_files import BATCHES
from floodway.job.fold import Fold
from floodway.job.latencies import Latencies
from floodway.job.ledger_tail import LedgerTail
from floodway.job.store import LocalStore

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
            batches = folder / BATCHES
            if folder not in self._ledgers:
                tail = LedgerTail(LocalStore(folder))
                if tail.identity() is not None:
                    self._ledgers[folder] = tail
            if batches not in self._batches and batches.exists():
                self._batches[batches] = LineTail(batches, self._take_batches)
        same = [tail.advance(self._account) for tail in self._ledgers.values()]
        return all(same) and all(tail.advance() for tail in self._batches.values())

    def _take_batches(self, stored: list[bytes]) -> None:
        for raw in stored:
            try:
                body = json.loads(raw)
                pairs = [(int(milliseconds), int(count)) for milliseconds, count in body["latencies"]]
                ended = float(body["ended_seconds"])
            except (ValueError, TypeError, KeyError):
                continue
            self.latencies.add(ended, pairs)
