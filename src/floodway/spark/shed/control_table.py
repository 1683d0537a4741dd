"""The control table: one JSON line that every micro-batch re-reads, and the decision that a batch finds in it.

The file `control.json` is one object on one line, replaced atomically:

    {"version": 1, "history": [ENTRY, ...], "epochs": [EPOCH, ...]}

    ENTRY  seq (counts up), valid_from_us, keep_ppm, salt, mode, threshold (null: none), tie_ppm,
           budget (null: none), rate, base_us
    EPOCH  valid_from_us, start_us, pass_ppm, emit_ppm        (Window Drop only, see planning/window_drop.py)

oldest first. A micro-batch has a timestamp that Spark journals before the batch runs and gives back on replay; the
entry in force is the last one with `valid_from_us` at or before it. So that a batch finds the same entry whenever it
runs, an entry must be in the file before any batch with such a timestamp can begin: it is written with
`valid_from_us` = now + a guard, and the write is repeated with a longer guard if it took longer than that. A batch
that began before the write and reads the table after it looks up its own timestamp, and finds the entry before.

The file listing is cached by Spark with the file's length, hence one line: a line is read to its end.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from floodway.errors import FloodwayError
from floodway.job.decision import Mode
from floodway.planning.window_drop import ALWAYS, Epoch

PPM = 1_000_000
GUARD_US = 50_000
"""How far ahead of the clock an entry becomes valid: longer than a small file takes to be replaced."""

LONGEST_GUARD_US = 1_000_000
KEPT_ENTRIES = 64
KEPT_EPOCHS = 2048
"""As many windows, about, may be open at once, each with a keep of its own; older ones count as dropped."""

KeepPpm = Annotated[int, Field(ge=0, le=PPM)]

LOWEST, HIGHEST = 0.25, 1.25
"""How far a batch may move its keep from the forecast. Down by much, because a batch may run long by much;
up by little, because a query that waited is offered more than the time since the last batch says.
"""

ENTRY_SCHEMA = (
    "struct<seq:int,valid_from_us:bigint,keep_ppm:int,salt:bigint,mode:string,threshold:double,tie_ppm:int,"
    "budget:double,rate:double,base_us:bigint>"
)
EPOCH_SCHEMA = "struct<valid_from_us:bigint,start_us:bigint,pass_ppm:int,emit_ppm:int>"
TABLE_SCHEMA = f"history array<{ENTRY_SCHEMA}>, epochs array<{EPOCH_SCHEMA}>"


class ControlTableError(FloodwayError):
    """A control table that is not one, or cannot be written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The decision for micro-batches from `valid_from_us` on.

    With a `threshold`, tuples of a utility above it are kept, and `tie_ppm` of those that equal it; without one,
    `keep_ppm` of all by hash. `keep_ppm` is the keep aimed at in both cases.

    With a `budget` (tuples), the keep follows the batch: tuples arrive at `rate` a second since `base_us`, the end of
    the batch before, so one that begins at t is offered rate (t - base) and keeps the budget of it:

        keep = budget / (rate (t - base)),  within [0.25, 1.25] of keep_ppm

    A batch that ran long is so followed by a lower keep, before anything of it was reported.

    >>> entry = Entry(1, 0, keep_ppm=500_000, budget=300.0, rate=1000.0, base_us=0)
    >>> [entry.keep_at(t) for t in (200_000, 1_000_000, 60_000_000)]
    [625000, 300000, 125000]
    """

    seq: int
    valid_from_us: int
    keep_ppm: KeepPpm = PPM
    salt: int = 0
    mode: Mode = "observe"
    threshold: float | None = None
    tie_ppm: KeepPpm = PPM
    budget: float | None = None
    rate: float | None = None
    base_us: int | None = None

    def keep_at(self, batch_time_us: int) -> int:
        """The keep in ppm for a batch with this timestamp; the same as `control_columns.keep_in_force`."""
        if self.budget is None or self.rate is None or self.base_us is None:
            return self.keep_ppm
        offered = self.rate * max(batch_time_us - self.base_us, 1) / 1e6
        wanted = min(float(PPM), math.floor(PPM * self.budget / offered)) if offered > 0.0 else float(PPM)
        return math.floor(max(self.keep_ppm * LOWEST, min(wanted, self.keep_ppm * HIGHEST)))

    def says(self, other: Entry) -> bool:
        """Whether both decide the same, whenever they were written."""
        return replace(self, seq=0, valid_from_us=0) == replace(other, seq=0, valid_from_us=0)


@dataclass(frozen=True, slots=True)
class Table:
    """The content of the file."""

    history: tuple[Entry, ...]
    epochs: tuple[Epoch, ...] = (ALWAYS,)
    version: Literal[1] = 1

    def at(self, batch_time_us: int) -> Entry | None:
        """The entry in force for a micro-batch with this timestamp; None before the history."""
        valid = [entry for entry in self.history if entry.valid_from_us <= batch_time_us]
        return valid[-1] if valid else None

    def encode(self) -> bytes:
        """One line."""
        return (json.dumps(asdict(self), separators=(",", ":"), allow_nan=False) + "\n").encode()


_TABLE = TypeAdapter(Table)


@dataclass
class ControlTable:
    """The one writer of a control table. `clock_us` gives the wall clock in microseconds of the epoch."""

    path: Path
    clock_us: Callable[[], int]
    guard_us: int = GUARD_US
    late_writes: int = 0
    """Writes that ended after their entry had become valid: a replay of a batch begun meanwhile may differ."""

    table: Table = field(init=False)

    def open(self, first: Entry) -> bool:
        """Read the file, or begin it with `first`; whether it was there."""
        try:
            self.table = _TABLE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            self.table = Table((replace(first, valid_from_us=0),))
            self._replace(self.table.encode())
            return False
        except (ValidationError, UnicodeDecodeError) as error:
            raise ControlTableError(
                f"{self.path} is not a control table of version 1",
                hint="Move it away to begin a new one; a batch that is replayed then keeps everything.",
            ) from error
        return True

    @property
    def latest(self) -> Entry:
        """The entry written last, which may not be valid yet."""
        return self.table.history[-1]

    def put(self, entry: Entry, *, replays_from_us: int = 0) -> Entry:
        """Add a decision; its `seq` and `valid_from_us` are set here. One that says nothing new is not written.

        `replays_from_us` is the timestamp of the last committed batch: what was in force since then is kept.
        """
        if entry.says(self.latest):
            return self.latest
        return self._write(lambda valid: replace(entry, seq=self.latest.seq + 1, valid_from_us=valid), replays_from_us)

    def put_epoch(self, epochs: Callable[[int], tuple[Epoch, ...]]) -> None:
        """Replace the epochs by `epochs(valid_from_us)`, which adds an entry that becomes valid then."""
        self._write_table(lambda valid: replace(self.table, epochs=epochs(valid)))

    def _write(self, entry_at: Callable[[int], Entry], replays_from_us: int) -> Entry:
        def extended(valid_from_us: int) -> Table:
            history = (*self.table.history, entry_at(valid_from_us))
            return replace(self.table, history=trim(history, replays_from_us))

        self._write_table(extended)
        return self.latest

    def _write_table(self, table_at: Callable[[int], Table]) -> None:
        newest = max(self.latest.valid_from_us, self.table.epochs[-1].valid_from_us)
        for _attempt in range(8):
            # Never before an entry already there, also when the clock was set back.
            valid_from_us = max(self.clock_us() + self.guard_us, newest + 1)
            table = table_at(valid_from_us)
            if self._replace(table.encode(), not_after_us=valid_from_us):
                self.table = table
                return
            self._lengthen_guard()
        raise ControlTableError(
            f"{self.path} cannot be replaced within {self.guard_us / 1e6:g} s",
            hint="The decision in force stays; is the disk overloaded?",
        )

    def _replace(self, payload: bytes, not_after_us: int | None = None) -> bool:
        """Replace the file durably; False if the time was up before it became visible."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{token_hex(8)}")
        try:
            with fresh.open("xb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            if not_after_us is not None and self.clock_us() >= not_after_us:
                return False
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
        if not_after_us is not None and self.clock_us() >= not_after_us:
            self.late_writes += 1
            self._lengthen_guard()
        return True

    def _lengthen_guard(self) -> None:
        """A machine that was too slow once will be again; a second is as long as a decision may wait."""
        self.guard_us = min(2 * self.guard_us, LONGEST_GUARD_US)


def trim(history: Sequence[Entry], replays_from_us: int, most: int = KEPT_ENTRIES) -> tuple[Entry, ...]:
    """The last `most` entries, and all that a batch from `replays_from_us` on can ask for."""
    needed = max((i for i, e in enumerate(history) if e.valid_from_us <= replays_from_us), default=0)
    return tuple(history[min(needed, max(0, len(history) - most)) :])
