"""The ledger: per micro-batch, drop location and reason, what was offered, kept and dropped.

An append-only log of JSON lines (`job/store/line_log.py`) in the folder `ledger` of a job's state; one line is one
object with the fields of `LedgerLine` (`ledger_line.py`) and its version, keys sorted, e.g.

    {"at":"clicks","batch":7,"dropped":600,"keep_ppm":400000,"kept":400,"mode":"enforce","offered":1000,
     "plan":"8f3a01bc","query":"6f0c…","reason":"shedder","time_us":1735689600000000,"until":null,"v":2}

(on one line). A key (query, batch, at, reason) is written once: a replayed batch that says the same again is ignored,
one that says otherwise is kept beside it as a `conflict`. What `append` has returned from is durable.

A job may run for months: whenever a segment of the log is closed, the sums of everything so far are saved beside it,
and the oldest of `KEPT_SEGMENTS` segments is removed. A writer remembers the newest batches (`RecentLines`); what is
older is looked up in the log.

    ledger/sums-00000000000004194510.json      the fold of all lines before that position, removed ones included
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from threading import RLock

from floodway.errors import FloodwayError
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger_line import Key, LedgerLine, LineCounts, Reason, RecentLines
from floodway.job.store.line_log import open_log
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json

__all__ = ["LEDGER", "Ledger", "LedgerError", "LedgerLine", "LedgerTail", "Reason"]

log = logging.getLogger(__name__)

LEDGER = "ledger"
KEPT_SEGMENTS = 256
"""Closed and open: on a disk a gigabyte, some five million lines."""
_VERSION_1 = "ledger.jsonl"
_SUMS = re.compile(rf"{LEDGER}/sums-(\d{{20}})\.json")


class LedgerError(FloodwayError):
    """A ledger of another version, or a line that must not be in one."""

    exit_code = 3


class LedgerTail:
    """One reader of the ledger on a store, from its newest sums on, and from where the last look ended.

    So neither a start nor a look takes time that grows with the age of the job.
    """

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


class Ledger:
    """The ledger on a store; safe for several threads, and for several processes in turn.

    >>> import tempfile
    >>> from floodway.job.store.store import LocalStore
    >>> ledger = Ledger(LocalStore(tempfile.mkdtemp()))
    >>> line = LedgerLine("q", 0, "clicks", "shedder", offered=10, kept=4, dropped=6)
    >>> ledger.append([line]), ledger.append([line])
    (1, 0)
    >>> ledger.fold().total.dropped.total(), ledger.fold().differences()
    (6, [])
    """

    def __init__(self, store: Store, *, kept_segments: int = KEPT_SEGMENTS) -> None:
        self.store = store
        self._kept_segments = kept_segments
        self._lock = RLock()
        self._start_over()

    @property
    def torn(self) -> int:
        """Torn last lines cut away by this writer."""
        return self._tail.log.torn

    def exists(self) -> bool:
        """Whether a line was ever written."""
        return self._tail.identity() is not None

    def append(self, lines: Iterable[LedgerLine]) -> int:
        """Write the lines not yet there and return how many were written; durable when it returns."""
        wanted = list(lines)
        for line in wanted:
            if not line.balanced:
                raise LedgerError(
                    f"ledger line {line.key} does not balance: offered {line.offered}, "
                    f"kept {line.kept}, dropped {line.dropped}",
                    hint="offered must equal kept + dropped, none of them negative",
                )
        with self._lock:
            if not self._read_once:
                self._catch_up()
            while fresh := list(self._fresh(wanted)):
                payload = b"".join(line.encode() for line in fresh)
                end = self._tail.log.append(payload, self._tail.position)
                if end is not None:
                    self._tail.wrote(end)
                    self._fold.add(fresh)
                    for line in fresh:
                        self._remember(line)
                    self._close_segments()
                    break
                # Somebody else wrote: learn what, or find that the log is another one.
                before = self._tail.position
                self._catch_up()
                if self._tail.position == before:
                    self._start_over()
                    self._catch_up()
            return len(fresh)

    def read(self) -> list[LedgerLine]:
        """All whole lines that were not removed, in the order written."""
        return list(self.lines())

    def lines(self) -> Iterator[LedgerLine]:
        """As `read`, one by one: memory does not grow with the log."""
        return self._tail.lines(0, Fold()) if self.exists() else iter(())

    def last_batch(self, query: str, at: str) -> int | None:
        """The highest batch on record (gaps included) for a query and location; None if there is none."""
        with self._lock:
            self._catch_up()
            return self._fold.last_batch(query, at)

    def fold(self) -> Fold:
        """The sums over all lines ever written, and every way in which they do not add up."""
        with self._lock:
            self._catch_up()
            found = Fold()
            found.merge(self._fold)
        for text in self.torn_now():
            found.differ(text)
        return found

    def look(self, start: int) -> tuple[Fold, list[tuple[int, bytes]], int]:
        """The sums of all lines, the lines from a position on in parts, each with its end, and where both end.

        A job may write meanwhile: this goes on until sums and lines reach equally far.
        """
        parts: list[tuple[int, bytes]] = []
        while True:
            parts += self._tail.log.read(start)
            start = parts[-1][0] if parts else start
            with self._lock:
                fold, end = self.fold(), self._tail.position
            if end <= start:
                return fold, parts, end

    def segments(self) -> list[int]:
        """Where each segment that was not removed begins."""
        return self._tail.log.segments() if self.exists() else []

    def identity(self) -> str | None:
        """What tells this ledger from one that was removed and begun anew."""
        return self._tail.identity()

    def torn_now(self) -> list[str]:
        """A sentence about a torn last line, if there is one."""
        torn = self._tail.log.torn_bytes() if self.exists() else 0
        return [f"the last line is torn: {torn} bytes without a newline"] if torn else []

    def _start_over(self) -> None:
        self._tail = LedgerTail(self.store)
        self._fold = Fold()
        self._recent = RecentLines()
        self._read_once = False

    def _catch_up(self) -> None:
        """Learn what others wrote since."""
        if not self._tail.advance(self._fold, self._remember):
            self._start_over()
            self._tail.advance(self._fold, self._remember)
        self._read_once = True

    def _remember(self, line: LedgerLine) -> None:
        self._recent.add(line.key, line.counts)

    def _close_segments(self) -> None:
        """After a segment was closed: save the sums, and remove what is too old."""
        tail = self._tail
        if tail.log.closed <= tail.summed:
            return
        try:
            tail.save(self._fold, tail.position)
            segments = tail.log.segments()
            if len(segments) > self._kept_segments:
                tail.log.remove_before(segments[-self._kept_segments])
        except StoreError as error:
            # The lines are there; the next append tries again.
            log.warning("the sums of the ledger at %s were not saved: %s", self.store.uri, error)

    def _fresh(self, wanted: Sequence[LedgerLine]) -> Iterator[LedgerLine]:
        seen = self._searched({line.key for line in wanted if self._is_old(line)})
        for line in wanted:
            before = seen.get(line.key) or self._recent.find(line.key)
            if before is None:
                if not (self._is_old(line) and self._tail.log.segments()[0] > 0):
                    seen[line.key] = line.counts
                    yield line
            elif before != line.counts:
                # The first account stays; the second is evidence that a replay did not repeat the first run.
                conflict = replace(line, reason=Reason.CONFLICT.value)
                if conflict.key not in seen and self._recent.find(conflict.key) is None:
                    seen[conflict.key] = conflict.counts
                    yield conflict

    def _is_old(self, line: LedgerLine) -> bool:
        """Whether there may be a line with this key that is no longer remembered.

        The lines of a batch at one location are appended together: where one is remembered, all are. Conflicts and
        what a backfill recovers or counts come later, and tell nothing of the others.
        """
        place = (line.query, line.at, line.batch)
        if line.reason == Reason.RECOVERED:
            return self._fold.is_recovered(*place)
        remembered = set(self._recent.reasons(line.query, line.batch, line.at)) - {Reason.CONFLICT, Reason.RECOVERED}
        return not remembered and self._fold.holds(*place) and not self._fold.is_gap(*place)

    def _searched(self, keys: set[Key]) -> dict[Key, LineCounts]:
        """Lines that are no longer remembered, from the log, newest segment first: these keys and their conflicts."""
        found: dict[Key, LineCounts] = {}
        places = {key[:3] for key in keys}
        segments = self._tail.log.segments() if keys else []
        for begin, end in reversed([*pairwise(segments), *((last, None) for last in segments[-1:])]):
            for line in self._tail.lines(begin, Fold(), until=end):
                if line.key[:3] in places:
                    found.setdefault(line.key, line.counts)
            if keys <= found.keys():
                break
        return found
