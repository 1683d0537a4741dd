"""The copies of a shed's decisions in the checkpoints of its queries: for a state that was lost, or is an older one.

`floodway/NAME.6859aad9/control.json` in a checkpoint, by the place of the state, {"mode": "off", "table": {…}}, has the
operator's mode (null: none) and the control table, and is written again after every decision. A state that was lost
begins with it, so that a batch is repeated with the decision of its first try, and the operator's mode holds.

A state that somebody has restored from a backup is older than the checkpoint: its table says nothing of the batches
since. The copy is never later than the table of a state that is as the shed left it, so one that is later tells. And
where there is no copy to compare with, nothing vouches for the table: then it tells no decision of earlier batches.

What a backfill made good since the backup is not on record either. `restored.json`, {"time_us": …}, in such a state
says until when: a backfill of what was dropped before that is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from floodway.errors import FloodwayError, InputError
from floodway.job.decision import SAFE, Mode, OperatorMode, checked_mode
from floodway.job.places import ShedFiles
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json
from floodway.spark.shed.checkpoints import noted_checkpoints, read_record
from floodway.spark.shed.control_file import FILE, ControlTable
from floodway.spark.shed.control_table import Table
from floodway.spark.shed.report import Warnings

log = logging.getLogger(__name__)

RESTORED = "restored.json"
OLDER = (
    "the state at {place} is older than the checkpoint of query {query}, as after a restore from a copy: decisions "
    "continue from the checkpoint; what the ledger had since is lost, also what a backfill has processed"
)


@dataclass(frozen=True, slots=True)
class StateCopy:
    """What a checkpoint holds of a shed's state: the control table, and the operator's mode if there is one."""

    table: Table
    mode: Mode | None


class StateCopies:
    """The copies of one shed's state in the checkpoints of its running queries; `wish` is the operator's mode."""

    def __init__(self, files: ShedFiles, shed: str, wish: Callable[[], Mode | None]) -> None:
        self._wish = wish
        self._name = f"floodway/{files.key(shed)}/control.json"
        self._checkpoints: dict[str, Store] = {}

    def read(self, checkpoint: Store) -> StateCopy | None:
        """The copy in a checkpoint; None if there is none. StoreError if it cannot be understood."""
        raw = checkpoint.read(self._name)
        if raw is None:
            return None
        try:
            body = load_json(raw)
            table, mode = Table.decode(json.dumps(body["table"]).encode()), body["mode"]
            if table is None:
                raise ValueError("no control table")
            return StateCopy(table, None if mode is None else checked_mode(mode))
        except (ValueError, LookupError, TypeError, InputError):
            raise StoreError(
                f"{checkpoint.uri}/{self._name}, the copy of the shed's state, is damaged",
                hint="It is written again with the next decision",
            ) from None

    def begin(self, query: str, checkpoint: Store, table: bytes) -> None:
        """The shed is in this query: its checkpoint has a copy from now on."""
        self._checkpoints[query] = checkpoint
        self.write(table)

    def end(self, query: str) -> None:
        """The query has ended; its copy stays as it is."""
        self._checkpoints.pop(query, None)

    def write(self, table: bytes) -> None:
        """Replace all copies."""
        mode = json.dumps(self._wish()).encode() if self._checkpoints else b""
        for checkpoint in list(self._checkpoints.values()):  # a query may end, on Spark's thread, while this writes
            checkpoint.write(self._name, b'{"mode": %s, "table": %s}' % (mode, table))


class StateCheck:
    """The state as this process has found it, against the copies: whether it was lost, is older, or may be trusted."""

    def __init__(
        self,
        files: ShedFiles,
        shed: str,
        operator: OperatorMode,
        control: ControlTable,
        warnings: Warnings,
        now_us: int,
    ) -> None:
        """With the table as it was found, before this process decides."""
        self.copies = StateCopies(files, shed, operator.wish)
        self._store, self._shed, self._now_us = files.store, shed, now_us
        self._operator, self._control, self._warnings = operator, control, warnings
        self._table, self._is_new = control.table, not control.resumed
        self._vouched: set[str] = set()
        self.in_use = False
        """Whether a batch was reported: no other table comes in force any more."""
        self.was_older = False

    def vouches(self, query: str) -> bool:
        """Whether batches of the query before this process, too, have read this table, and none was reported."""
        return query in self._vouched

    def look(self, checkpoints: Iterable[tuple[str, Store]]) -> None:
        """See whether one of the checkpoints of former queries has a later table."""
        for query, checkpoint in checkpoints:
            try:
                copy = self.copies.read(checkpoint)
            except StoreError as error:  # it is said when the query starts
                log.info("floodway shed %s: %s", self._shed, error)
                continue
            if copy is not None:
                self._take(query, copy)

    def started(self, query: str, checkpoint: Store) -> None:
        """A query starts: go on with the copy in its checkpoint, if that is later than the state."""
        self._vouched.discard(query)
        try:
            copy = self.copies.read(checkpoint)
        except StoreError:
            if self._is_new and not self.in_use:  # whatever the operator asked for, this drops nothing
                self._operator.restore(SAFE)
            raise
        if copy is not None:
            self._take(query, copy)
            vouched = not (self.was_older or copy.table.is_after(self._control.table))
            self.copies.begin(query, checkpoint, self._control.table.encode())
        else:
            vouched = read_record(checkpoint, self._shed) is None  # else there was one
        if vouched:
            self._vouched.add(query)

    def reported(self, query: str) -> None:
        """A batch of the query was reported: it and those to come read this very table."""
        self.in_use = True
        self._vouched.add(query)

    def _take(self, query: str, copy: StateCopy) -> None:
        """Put the table of a copy in force, if it is later than the one found and that was not in use."""
        if self.in_use or not copy.table.is_after(self._table):
            return
        if not self._is_new:
            self.was_older = True
            self._warnings.say(OLDER.format(place=self._store.uri, query=query))
            self._store.write(RESTORED, json.dumps({"time_us": self._now_us}).encode())
        # After that: the state is then no older one any more.
        self._operator.restore(copy.mode, doubtful=not self._is_new)
        self._control.adopt(copy.table)
        self._table = copy.table


def check_restored(files: ShedFiles, shed: str, since_us: int | None, open_store: Callable[[str], Store]) -> None:
    """InputError where a backfill of what was dropped since then might repeat what is no longer on record."""
    place, raw = files.store.uri, files.store.read(RESTORED)
    if raw is not None:
        _check_since(place, raw, since_us)
    copies = StateCopies(files, shed, lambda: None)
    later: dict[str, StateCopy] = {}
    for query, checkpoint in noted_checkpoints(files).items():
        with suppress(FloodwayError):  # it is not for a backfill to say
            if (copy := copies.read(open_store(checkpoint))) is not None:
                later[query] = copy
    # After the copies: a job that runs writes them last.
    table = Table.decode(files.store.read(FILE) or b"")
    for query, copy in later.items():
        if table is not None and copy.table.is_after(table):
            raise InputError(
                OLDER.format(place=place, query=query), hint="Start the job first, which continues from its checkpoint"
            )


def _check_since(place: str, raw: bytes, since_us: int | None) -> None:
    when, remove = "its restore", f"if no backfill ran then, remove {place}/{RESTORED}"
    with suppress(ValueError, LookupError, TypeError, OverflowError, OSError):
        until_us = int(load_json(raw)["time_us"])
        when = datetime.fromtimestamp(until_us // 10**6 + 1, UTC).isoformat()
        if since_us is not None and since_us >= until_us:
            return
        remove = f"leave out what was dropped before by --since {when}; or, {remove}"
    raise InputError(
        f"the state at {place} was restored from a copy: what a backfill processed since, up to {when}, is not known",
        hint=remove[0].upper() + remove[1:],
    )
