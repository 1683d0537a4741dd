"""Reading a ledger as it grows: from its newest sums on, and from where the last look ended.

    ledger/sums-00000000000004194510.json      the fold of all lines before that position, removed ones included

So that neither a start nor a look takes time that grows with the age of the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from floodway.errors import FloodwayError
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger_line import LedgerLine
from floodway.job.store.line_log import open_log
from floodway.job.store.store import Store
from floodway.json_text import load_json

LEDGER = "ledger"
_VERSION_1 = "ledger.jsonl"
_SUMS = re.compile(rf"{LEDGER}/sums-(\d{{20}})\.json")


class LedgerError(FloodwayError):
    """A ledger of another version, or a line that must not be in one."""

    exit_code = 3


class LedgerTail:
    """One reader of the ledger on a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log = open_log(store, LEDGER)
        self.position = 0
        self.summed = 0
        """Up to where the sums are saved."""
        self._identity: str | None = None

    def identity(self) -> str | None:
        """The identity of the log, None before anything was written; LedgerError for a ledger of version 1."""
        found = self.log.identity()
        if found is None and self.store.modified(_VERSION_1) is not None:
            raise LedgerError(
                f"{self.store.uri} holds a ledger of version 1",
                hint="Read it with the version of Floodway that wrote it, and give this job a new place for its state",
            )
        return found

    def advance(self, fold: Fold, take: Callable[[LedgerLine], None] | None = None) -> bool:
        """Add what was written since to a fold; False, with nothing added, if this is not the ledger of the last look.

        `take` gets every line that is read; lines that the sums stand for are not.
        """
        identity = self.identity()
        if identity is None:  # not begun yet, or removed: what was read stays until something new is there
            return True
        if self._identity is None:
            self._identity = identity
            self._start(fold)
        elif identity != self._identity:
            return False
        for line in self.lines(self.position, fold, mark=True):
            fold.add((line,))
            if take is not None:
                take(line)
        return True

    def wrote(self, position: int) -> None:
        """The log ends there with lines of our own, which need not be read."""
        self.position = position
        if self._identity is None:
            self._identity = self.log.identity()

    def lines(self, start: int, fold: Fold, *, until: int | None = None, mark: bool = False) -> Iterator[LedgerLine]:
        """The lines between two positions; what is no line is counted in the fold. `mark`: the look gets that far."""
        for position, part in self.log.read(start):
            if until is not None and position > until:
                return
            for stored in part.splitlines():
                try:
                    yield LedgerLine.decode(stored)
                except ValueError:
                    fold.unreadable += 1
            if mark:
                self.position = position

    def save(self, fold: Fold, position: int) -> None:
        """Leave the sums of all lines before a position; of earlier sums one stays, should these be broken."""
        body = {"id": self.log.identity(), "position": position, "fold": fold.snapshot()}
        self.store.write(f"{LEDGER}/sums-{position:020d}.json", json.dumps(body).encode())
        self.summed = position
        for name in self._saved()[2:]:
            self.store.remove(name)

    def _start(self, fold: Fold) -> None:
        """Begin with the newest sums that can be read, else with the first line."""
        for name in self._saved():
            try:
                body = load_json(self.store.read(name) or b"")
                if body["id"] == self._identity:
                    fold.merge(Fold.restored(body["fold"]))
                    self.position = self.summed = int(body["position"])
                    return
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
        self.position = min(self.log.segments(), default=0)
        if self.position > 0:
            fold.differ(f"{self.store.uri}/{LEDGER}: the sums of the lines before position {self.position} are lost")

    def _saved(self) -> list[str]:
        """The names of the sums, newest first."""
        return sorted((name for name in self.store.names(LEDGER) if _SUMS.fullmatch(name)), reverse=True)
