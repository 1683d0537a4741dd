"""The one writer of a control table: `control.json` in the shed's state, replaced whole.

A batch takes its timestamp, is journaled, and only then reads the file. So that it finds the same entry whenever it
reads, an entry comes into force a guard later than the clock says when it is written: a batch with such a timestamp
began when the file was in place. A write that took longer than its guard is counted, and the guard becomes longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from floodway.errors import FloodwayError
from floodway.job.store.store import Store
from floodway.planning.window_drop import Epoch
from floodway.spark.shed.control_table import Entry, Table
from floodway.spark.shed.open_batches import OpenBatches, OpenJournal, open_checkpoint

FILE = "control.json"
GUARD_US = 50_000
"""How far ahead of the clock an entry comes into force: longer than a small file takes to be replaced."""

LONGEST_GUARD_US = 1_000_000
"""As long as a decision may wait."""


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
    ) -> None:
        """Go on with the table that is there, or begin one with `first`.

        `checkpoints` are those of the queries, by id, that the shed was in before this process. A decision expires
        `expires_us` after it was written or renewed; None: never.
        """
        self._store = store
        self._clock_us = clock_us
        self._expires_us = expires_us
        self._writes_us: deque[int] = deque([0], maxlen=16)
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
        self.open_batches = OpenBatches(checkpoints, found.unread, clock_us(), open_journal)
        if raw is None:
            store.write(FILE, found.encode())

    @property
    def latest(self) -> Entry:
        """The entry written last, which may not be in force yet."""
        return self.table.latest

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

    def write_again(self) -> None:
        """Put the table back where somebody has removed or broken the file."""
        self._store.write(FILE, self.table.encode())

    def renew(self) -> None:
        """Let the latest decision hold for longer; batches that have begun have what they had."""
        if self._expires_us is not None:
            self._write(self.latest, self.table.epochs, news=False)

    def all_know(self, seq: int) -> bool:
        """Whether no batch that runs, nor any to come, finds an entry before this one."""
        if self.table.oldest_seq < seq:
            self._write(self.latest, self.table.epochs, news=False)  # without what was in force for ended batches
        now_us = self._clock_us()
        return self.table.oldest_within(self.open_batches.begun(now_us, now_us + 1).running) >= seq

    def _write(self, entry: Entry, epochs: tuple[Epoch, ...], *, news: bool = True) -> None:
        now_us = self._clock_us()
        valid_us = now_us + self.guard_us
        begun = self.open_batches.begun(now_us, valid_us)
        if news:
            entry = replace(entry, seq=self.latest.seq + 1, valid_from_us=valid_us)
        entry = replace(entry, until_us=None if self._expires_us is None else valid_us + self._expires_us)
        table = replace(
            self.table.changed(entry, [*begun.running, *begun.repeated]), epochs=epochs, unread=begun.unread
        )
        self._store.write(FILE, table.encode())
        self.table = table
        done_us = self._clock_us()
        self._writes_us.append(done_us - now_us)
        if done_us >= valid_us:
            self.late_writes += 1

    @property
    def guard_us(self) -> int:
        """Twice as long as the slowest of the last writes took."""
        return min(max(GUARD_US, 2 * max(self._writes_us)), LONGEST_GUARD_US)
