"""What ties a shed and the checkpoints of its queries together, for restarts and for `floodway audit`.

- `checkpoints.json` in the shed's state, {"6f0c…": "/data/checkpoints/clicks"}: query id, as in the ledger, and folder.
  A shed learns its query's name from Spark's events, and its checkpoint from the query itself when it starts. Whether
  it is in a query at all shows in the query's first progress: until then all that start are noted.
- `floodway/NAME.json` in a query's checkpoint, {"since": 17, "state": "file:///…"}: from which batch on the shed has
  counted, and where. A state that was lost cannot say so itself.
- `floodway/NAME.6859aad9/control.json` there, by the place of the state, {"mode": "off", "table": {…}}: the operator's
  mode (null: none) and the control table, written again after every decision. A state that was lost begins with it, so
  that a batch is repeated with the decision of its first try, and the operator's mode holds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from floodway.job.decision import Mode
from floodway.job.shed_state import ShedFiles
from floodway.job.store.state_files import MODES
from floodway.job.store.store import Store
from floodway.json_text import load_json
from floodway.spark.shed.control_table import Table

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
    known = noted_checkpoints(files)
    if known.get(query) != checkpoint:
        known.pop(query, None)
        kept = [*known.items(), *([] if checkpoint is None else [(query, checkpoint)])]
        files.store.write(CHECKPOINTS, json.dumps(dict(kept[-MOST:])).encode())


def noted_checkpoints(files: ShedFiles) -> dict[str, str]:
    """Where the queries of a shed have their checkpoints, as far as noted; by query id."""
    try:
        body = load_json(files.store.read(CHECKPOINTS) or b"{}")
        return {str(query): str(path) for query, path in body.items()}
    except (ValueError, AttributeError):
        return {}


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
    """The record of a shed in a checkpoint, or this one, which is left there if there is none."""
    checkpoint.create(_record(shed), json.dumps(asdict(record)).encode())
    return read_record(checkpoint, shed) or record


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
