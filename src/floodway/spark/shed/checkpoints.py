"""What ties a shed and the checkpoints of its queries together, for restarts and for `floodway audit`.

- `checkpoints.json` in the shed's state, {"6f0c…": {"place": "/data/checkpoints/clicks", "since": 0}}: query id, as in
  the ledger, folder, and the first batch that ran with the shed; the folder alone before version 0.2. A shed learns its
  query's name from Spark's events, and its checkpoint from the query itself when it starts. Whether it is in a query at
  all shows in the query's first progress: until then all that start are noted.
- `floodway/NAME.json` in a query's checkpoint, {"since": 17, "state": "file:///…"}: from which batch on the shed has
  counted, and where. A state that was lost cannot say so itself.
- `floodway/NAME.6859aad9/control.json` there, by the place of the state, {"mode": "off", "table": {…}}: the operator's
  mode (null: none) and the control table, written again after every decision. A state that was lost begins with it, so
  that a batch is repeated with the decision of its first try, and the operator's mode holds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from floodway.errors import FloodwayError
from floodway.job.decision import Mode
from floodway.job.shed_state import ShedFiles
from floodway.job.store.state_files import MODES
from floodway.job.store.store import Store
from floodway.json_text import load_json
from floodway.spark.session.stores import open_store
from floodway.spark.shed.control_table import Table
from floodway.spark.shed.open_batches import journaled_batches

CHECKPOINTS = "checkpoints.json"
MOST = 50
"""Checkpoints kept: a job that is started without one has a new one every time."""


def checkpoint_of(spark: SparkSession, query: str) -> str | None:
    """The checkpoint of a running query of this Spark application; None where Spark does not say."""
    found: Any = spark.streams.get(query)
    if found is None:
        return None
    address = urlparse(str(found._jsq.streamingQuery().resolvedCheckpointRoot()))
    return unquote(address.path) if address.scheme in ("", "file") else address.geturl()


def note_checkpoint(files: ShedFiles, query: str, checkpoint: str | None) -> None:
    """Keep where a query of this shed has its checkpoint; None: it is no query of this shed."""
    known = _notes(files.store)
    before = known.pop(query, None)
    if (None if before is None else before.place) != checkpoint:
        if checkpoint is not None:
            known[query] = CheckpointNote(checkpoint, _next_batch(checkpoint))
        kept = {key: asdict(note) for key, note in list(known.items())[-MOST:]}
        files.store.write(CHECKPOINTS, json.dumps(kept).encode())


def noted_checkpoints(files: ShedFiles) -> dict[str, str]:
    """Where the queries of a shed have their checkpoints, as far as noted; by query id."""
    return {query: note.place for query, note in _notes(files.store).items()}


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """The checkpoint of a query, and the batch that was its next one when it was noted; None if that was not known."""

    place: str
    since: int | None


def _notes(state: Store) -> dict[str, CheckpointNote]:
    try:
        body = load_json(state.read(CHECKPOINTS) or b"{}")
        return {str(query): _note(note) for query, note in body.items()}
    except (ValueError, AttributeError, LookupError, TypeError):
        return {}


def _note(body: Any) -> CheckpointNote:
    return CheckpointNote(body, None) if isinstance(body, str) else CheckpointNote(str(body["place"]), body["since"])


def _next_batch(place: str) -> int | None:
    try:
        return max(journaled_batches(open_store(place), "commits"), default=-1) + 1
    except FloodwayError:
        return None


@dataclass(frozen=True, slots=True)
class Record:
    """The first batch of a query that a shed counted, and the place of its state."""

    since: int
    state: str


def read_record(checkpoint: Store, shed: str) -> Record | None:
    """The record of a shed in a checkpoint; None if there is none, or none that can be understood."""
    try:
        body = load_json(checkpoint.read(_record(shed)) or b"null")
        return Record(int(body["since"]), str(body["state"]))
    except (ValueError, LookupError, TypeError, OverflowError):
        return None


def first_record(checkpoint: Store, shed: str, record: Record) -> Record:
    """The record of a shed in a checkpoint, or this one, which is left there if there is none.

    The first batch that was reported need not be the first with the shed: the driver may have died before. So this
    record begins with the batch that the state noted when the query started.
    """
    known = read_record(checkpoint, shed)
    if known is None:
        since = _noted_since(record.state, checkpoint)
        record = replace(record, since=record.since if since is None else min(since, record.since))
        checkpoint.create(_record(shed), json.dumps(asdict(record)).encode())
    return known or read_record(checkpoint, shed) or record


def _noted_since(state: str, checkpoint: Store) -> int | None:
    try:
        notes = _notes(open_store(state)).values()
        return next((note.since for note in notes if open_store(note.place).uri == checkpoint.uri), None)
    except FloodwayError:
        return None


@dataclass(frozen=True, slots=True)
class StateCopy:
    """What a checkpoint holds of a shed's state: the control table, and the operator's mode if there is one."""

    table: Table
    mode: Mode | None


class StateCopies:
    """The copies of one shed's state in the checkpoints of its running queries."""

    def __init__(self, files: ShedFiles, shed: str) -> None:
        self._files = files
        self._name = f"floodway/{files.key(shed)}/control.json"
        self._checkpoints: dict[str, Store] = {}

    def read(self, checkpoint: Store) -> StateCopy | None:
        """The copy in a checkpoint; None if there is none, or none that can be understood."""
        try:
            body = load_json(checkpoint.read(self._name) or b"null")
            table, mode = Table.decode(json.dumps(body["table"]).encode()), body["mode"]
        except (ValueError, LookupError, TypeError):
            return None
        return None if table is None else StateCopy(table, mode if mode in MODES else None)

    def begin(self, query: str, checkpoint: Store, table: bytes) -> None:
        """The shed is in this query: its checkpoint has a copy from now on."""
        self._checkpoints[query] = checkpoint
        self.write(table)

    def end(self, query: str) -> None:
        """The query has ended; its copy stays as it is."""
        self._checkpoints.pop(query, None)

    def write(self, table: bytes) -> None:
        """Replace all copies."""
        mode = json.dumps(self._files.read_mode()).encode() if self._checkpoints else b""
        for checkpoint in list(self._checkpoints.values()):  # a query may end, on Spark's thread, while this writes
            checkpoint.write(self._name, b'{"mode": %s, "table": %s}' % (mode, table))


def _record(shed: str) -> str:
    return f"floodway/{shed}.json"
