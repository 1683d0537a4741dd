"""What must be known of a query for as long as its checkpoint lives, kept inside that: CHECKPOINT/floodway.json.

    {"v": 2, "tasks": 2, "began": {"clicks": {"0": 0, "1": 0}}}

*Tasks*: a task of a batch writes the partition of its own number under the batch's tag, and one that comes again finds
its tag there. A batch that was half written must therefore be repeated by as many tasks as before, whatever the network
file says by then. *Began*: where the query's first batch started in every source. Spark forgets that after a hundred
batches; with it, all that was ever offered can be reconciled. *Version*: in checkpoints of version 1 results did not
name their query; a batch that was half written there would be written twice by a later version, so they are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.job.store.state_files import write_atomically
from floodway.spark.query.journal import JournaledBatch

NOTES = "floodway.json"


@dataclass(frozen=True, slots=True)
class QueryNotes:
    """Tasks of a batch, None if not on record, and where each source began, as positions by partition."""

    tasks: int | None = None
    began: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    v: Literal[2] = 2


_FORM = TypeAdapter(QueryNotes)


def read_notes(checkpoint: Path) -> QueryNotes:
    """The notes of a query; empty ones if there are none yet."""
    path = checkpoint / NOTES
    try:
        return _FORM.validate_json(path.read_bytes())
    except FileNotFoundError:
        return QueryNotes()
    except ValidationError as error:
        if error.errors()[0]["loc"] == ("v",):
            raise InputError(
                f"{checkpoint} was made by another version of Floodway",
                hint="Continue with that version, or start with a new state folder",
            ) from None
        raise InputError(
            f"{path} is not as Floodway wrote it: {error.errors()[0]['msg']}", hint="Restore the checkpoint"
        ) from None


def note_tasks(checkpoint: Path, tasks: int) -> None:
    """Keep the number of tasks that a query was first started with."""
    notes = read_notes(checkpoint)
    if notes.tasks is None:
        _write(checkpoint, replace(notes, tasks=tasks))


def note_beginnings(checkpoint: Path, journal: JournaledBatch) -> None:
    """Keep where the sources began that have their first offset in this batch."""
    notes = read_notes(checkpoint) if journal.first else QueryNotes()
    fresh = {at: dict(journal.offsets[at].start) for at in journal.first if at not in notes.began}
    if fresh:
        _write(checkpoint, replace(notes, began={**notes.began, **fresh}))


def _write(checkpoint: Path, notes: QueryNotes) -> None:
    write_atomically(checkpoint / NOTES, json.dumps(asdict(notes)))
