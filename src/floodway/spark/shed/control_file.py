"""The one writer of a control table: `control.json` in the shed's state, replaced whole.

A batch takes its timestamp, is journaled, and only then reads the table. So that it finds the same entry whenever it
reads, an entry comes into force a guard later than the clock says when it is written: a batch with such a timestamp
began when the table was in place. All that takes long is done beside the file; then the clock says whether there is
time left to replace it. If not, the file stays as it was, and the next try has a longer guard.

A reader leaves no trace. So nothing can mend a process that is held up just between that look at the clock and the
replacement, nor a request to an object store that takes longer than its guard: batches that read the file may have met
it late, which is counted. Readers in memory have not: for them it is repeated.

`DecisionWatch` says whether batches find the decisions that are written for them: executors may not see the file at
all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodway.errors import FloodwayError
from floodway.job.store.store import OBJECT_SCHEMES, Store, StoreError, scheme_of
from floodway.spark.shed.control_table import EVER_US, Entry, Table
from floodway.spark.shed.open_batches import OpenBatches, OpenJournal, open_checkpoint

if TYPE_CHECKING:
    from floodway.planning.windows.window_drop import Epoch
    from floodway.spark.shed.report import BatchReport, Warnings

FILE = "control.json"
GUARD_US = 250_000
"""How far ahead of the clock an entry comes into force, at least: longer than a small file takes to be replaced and to
be given to the readers in memory. Under overload it costs nothing: the next batch has begun when a decision is made.
"""

REQUEST_GUARD_US = 1_000_000
"""The same where batches read an object store: one request both takes long and makes the table visible."""

LONGEST_GUARDS_US = (1_000_000, 10_000_000, 60_000_000)
"""As long as a decision may wait: at the first try to write it, at the second, and at the last, which is not given up.
"""

HANDING_US = 50_000
"""How long it takes to give the table to the readers in memory, at least: a call to Java from a busy process."""


SLOWEST_US = 2_000_000
"""As much as is believed of how long the rest took: a clock that was set meanwhile must not hold up the next decisions.
"""


LATE = "decisions written too late: {count}; a batch that began meanwhile may differ from the first try if repeated"


class ControlTableError(FloodwayError):
    """A control table that is not one."""


class ControlTable:
    """Reads the table once and writes it from then on. `clock_us` gives the wall clock in microseconds of the epoch."""

    def __init__(
        self,
        store: Store,
        clock_us: Callable[[], int],
        first: Entry,
        checkpoints: Mapping[str, str],
        open_journal: OpenJournal = open_checkpoint,
        expires_us: int | None = None,
        last_batch: Callable[[str], int | None] = lambda _: None,
        doubt_us: Callable[[], int] = lambda: 0,
    ) -> None:
        """Go on with the table that is there, or begin one with `first`.

        `checkpoints` are those of the queries, by id, that the shed was in before this process. A decision expires
        `expires_us` after it was written or renewed; None: never. `last_batch` is the last one of a query on record.
        The clock of batches may be behind `clock_us` by `doubt_us`.
        """
        self._store = store
        self._doubt_us = doubt_us
        self._clock_us = clock_us
        self._expires_us = expires_us
        # Of the last writes: how long all took that is done beside the file, and what came after it.
        self._drafts_us: deque[int] = deque([0], maxlen=16)
        self._ends_us: deque[int] = deque([0], maxlen=16)
        self._failed: Table | None = None
        """What could not be written, as the store said; its readers may have seen it all the same."""
        self.late_writes = 0
        """Writes that ended after their entry came into force: a replay of a batch begun meanwhile may differ."""
        raw = store.read(FILE)
        self.resumed = raw is not None
        found = Table(first) if raw is None else Table.decode(raw)
        if found is None:
            raise ControlTableError(
                f"{store.uri}/{FILE} is not a control table of version 2",
                hint="Move it away to begin a new one; a batch that is replayed then keeps everything.",
            )
        self.table = found
        self.open_batches = OpenBatches(checkpoints, found.unread, clock_us(), open_journal, last_batch)
        self._readers: list[Callable[[bytes], None]] = []
        self.copy: Callable[[bytes], None] = lambda raw: None
        """Is given every table that was written; it must not raise."""
        if raw != found.encode():  # also what another version has written
            store.write(FILE, found.encode())

    @property
    def latest(self) -> Entry:
        """The entry written last, which may not be in force yet."""
        return self.table.latest

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence if a replay may differ from its first try, else none."""
        if not self.late_writes:
            return ()
        return (LATE.format(count=self.late_writes),)

    def put(self, entry: Entry) -> Entry:
        """Put a decision in force; its `seq` and `valid_from_us` are set here. Nothing new is not written again.

        Should the store fail, the decision before stays in force.
        """
        if not entry.says(self.latest):
            self._write(entry, self.table.epochs)
        return self.latest

    def put_epochs(self, epochs: Callable[[int], tuple[Epoch, ...]]) -> None:
        """Replace the epochs by `epochs(seq)`, which adds one that entries from `seq` on know."""
        self._write(self.latest, epochs(self.latest.seq + 1))

    @property
    def uri(self) -> str:
        """The address of the file."""
        return f"{self._store.uri}/{FILE}"

    def also_to(self, reader: Callable[[bytes], None]) -> None:
        """Give the table to a reader beside the file, now and after every write."""
        reader(self.table.encode())
        if reader not in self._readers:
            self._readers.append(reader)

    def adopt(self, table: Table) -> None:
        """Go on with a table that was saved elsewhere, before any batch has read the present one."""
        self.table, self.resumed = table, True
        self.write_again()

    def write_again(self) -> None:
        """Put the table back where somebody has removed or broken the file."""
        raw = self.table.encode()
        self._store.write(FILE, raw)
        self._hand(raw)

    def renew(self) -> None:
        """Let the latest decision hold for longer; batches that have begun have what they had."""
        if self._expires_us is not None:
            self._write(self.latest, self.table.epochs, news=False)

    def all_know(self, seq: int) -> bool:
        """Whether no batch that runs, nor any to come, finds an entry before this one."""
        if self.table.oldest_seq < seq:
            self._write(self.latest, self.table.epochs, news=False)  # without what was in force for ended batches
        now_us = self._clock_us()
        return self.table.oldest_within(self.open_batches.begun(now_us - self._doubt_us(), now_us + 1).running) >= seq

    def _write(self, entry: Entry, epochs: tuple[Epoch, ...], *, news: bool = True) -> None:
        self._look_at_failed()
        for longest_us in LONGEST_GUARDS_US:
            now_us = self._clock_us()
            ending_us = max(HANDING_US, 2 * max(self._ends_us))
            guard_us = max(self._least_guard_us, 2 * max(self._drafts_us) + ending_us)
            valid_us = now_us + min(guard_us, longest_us)
            table = self._changed(entry, epochs, now_us, valid_us, news=news)
            raw = table.encode()
            last_us = EVER_US if longest_us == LONGEST_GUARDS_US[-1] else valid_us - ending_us
            try:  # first: what no batch after a crash would find must not be in force
                drafted_us = self._replace(raw, last_us)
            except StoreError:
                if not self._took_place(raw):
                    self._failed = table
                    raise
                drafted_us = self._clock_us()
            self._drafts_us.append((drafted_us or self._clock_us()) - now_us)
            if drafted_us and not (self._readers and self._clock_us() + HANDING_US >= valid_us):
                break
        self._hand(raw)
        self.table = table
        done_us = self._clock_us()
        self._ends_us.append(min(done_us - (drafted_us or now_us), SLOWEST_US))
        if done_us >= valid_us:
            self.late_writes += 1
        self.copy(raw)

    @property
    def _least_guard_us(self) -> int:
        by_request = not self._readers and scheme_of(self._store.uri) in OBJECT_SCHEMES
        return REQUEST_GUARD_US if by_request else GUARD_US

    def _replace(self, raw: bytes, last_us: int) -> int | None:
        """When all was done beside the file; None if that was not before `last_us`, and the file is as it was."""
        drafted_us = 0

        def in_time() -> bool:
            nonlocal drafted_us
            drafted_us = self._clock_us()
            return drafted_us < last_us

        return drafted_us if self._store.write(FILE, raw, in_time=in_time) else None

    def _took_place(self, raw: bytes) -> bool:
        """Whether the file is in place although the store says it failed: then a driver after this one goes by it."""
        try:
            return self._store.read(FILE) == raw
        except StoreError:
            return False

    def _look_at_failed(self) -> None:
        """A store may also do later what it said has failed; then the batches that read the file have met it."""
        if self._failed is not None and not self._readers and self._store.read(FILE) == self._failed.encode():
            self.table = self._failed
        self._failed = None

    def _changed(self, entry: Entry, epochs: tuple[Epoch, ...], now_us: int, valid_us: int, *, news: bool) -> Table:
        """The table with this entry in force from then on; of batches that begin before, with what they have."""
        begun = self.open_batches.begun(now_us - self._doubt_us(), valid_us)
        if news:
            entry = replace(entry, seq=self.latest.seq + 1, valid_from_us=valid_us)
        entry = replace(entry, until_us=None if self._expires_us is None else valid_us + self._expires_us)
        changed = self.table.changed(entry, [*begun.running, *begun.repeated])
        return replace(changed, epochs=epochs, unread=begun.unread)

    def _hand(self, raw: bytes) -> None:
        for reader in self._readers:
            reader(raw)


UNSEEN_BATCHES = 2
"""Batches in a row without their decision before that is said: one may have met a write that took long."""


class DecisionWatch:
    """`seen` says whether the last batch with tuples found the decision written for it; None before the first."""

    def __init__(self, control: ControlTable, warnings: Warnings) -> None:
        self.seen: bool | None = None
        self._control = control
        self._warnings = warnings
        self._unseen = 0

    def look(self, report: BatchReport) -> None:
        """Take in a batch; one that found another decision, or none, has the table written again."""
        if not report.offered:
            return
        time_us = report.batch_time_us or report.started_us
        expected = self._control.table.at(time_us)
        self.seen = report.seq == expected.seq
        if expected.until_us is not None and expected.expired(time_us):
            since = datetime.fromtimestamp(expected.until_us / 1e6, UTC)
            self._warnings.say(
                f"batches kept everything from {since:%Y-%m-%d %H:%M:%S} UTC on: nobody renewed the decision"
            )
        self._unseen = 0 if self.seen else self._unseen + 1
        unseen = f"batches do not find the decisions in {self._control.uri} and keep everything: can executors read it?"
        if self.seen:
            self._warnings.say_only(None, [unseen])
        else:
            self._control.write_again()
            if self._unseen >= UNSEEN_BATCHES and expected.mode == "enforce":
                self._warnings.say(unseen)
