"""What Spark journaled about a micro-batch: when it was cut, and the offset of every Floodway source in it.

Spark writes `CHECKPOINT/offsets/N` before batch N runs, so inside the batch its decision can be read back, and after
a crash an audit can tell what every batch offered and kept without asking anyone who was there.

A checkpoint has an id, which Spark gives it in `CHECKPOINT/metadata` and which goes with it when it moves. Results,
ledger lines and folders of files name it, because batches are counted from 0 in every checkpoint:

    QUERY = NODE.FRAGMENT@ID          ID: the first twelve digits of Spark's

What must be known of a query for as long as its checkpoint lives is kept inside that, in CHECKPOINT/floodway.json:

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
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.job.store.store import write_atomically
from floodway.json_text import load_json
from floodway.spark.source.offsets import BatchOffset, parse_offset

_ID_DIGITS = 12

NOTES = "floodway.json"


@dataclass(frozen=True, slots=True)
class JournaledBatch:
    """Batch number, the time it was cut (milliseconds since 1970), and the offsets of the sources that had news.

    `first` are the sources that no batch before had an offset of. `certain` is False for the oldest batch that Spark
    still has, unless it is batch 0: whether its offsets are news cannot be told without the batch before.
    """

    batch: int
    timestamp_ms: int
    offsets: Mapping[str, BatchOffset]
    first: frozenset[str] = frozenset()
    certain: bool = True

    @property
    def plans(self) -> frozenset[str]:
        """The names of the plans that the batch was cut under."""
        return frozenset(offset.plan for offset in self.offsets.values())


def checkpoint_id(checkpoint: Path) -> str | None:
    """Spark's id of a checkpoint; None if Spark has not made one there."""
    try:
        return str(UUID(load_json((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{checkpoint / 'metadata'} has no id of a query: {error!r}", hint="Restore the checkpoint"
        ) from error


def query_key(name: str, checkpoint: Path) -> str:
    """`name@id`: what the query of this checkpoint writes under.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "metadata").write_text('{"id":"6f0c2c5e-1b2a-4c8e-9d3f-000000000000"}')
    >>> query_key("A.main", folder)
    'A.main@6f0c2c5e1b2a'
    """
    found = checkpoint_id(checkpoint)
    if found is None:
        raise InputError(f"{checkpoint / 'metadata'} is not there", hint="Restore the checkpoint")
    return f"{name}@{UUID(found).hex[:_ID_DIGITS]}"


def query_name(key: str) -> str:
    """The name in a key.

    >>> query_name("A.main@6f0c2c5e1b2a")
    'A.main'
    """
    return key.rpartition("@")[0] or key


def read_batch(checkpoint: Path, batch: int) -> JournaledBatch:
    """Batch N as journaled. A source whose offset is that of the batch before brought nothing and is left out."""
    journal = _read(checkpoint / "offsets" / str(batch), batch)
    before = checkpoint / "offsets" / str(batch - 1)
    certain = batch == 0 or before.exists()
    old = _read(before, batch - 1).offsets if before.exists() else {}
    news = {name: offset for name, offset in journal.offsets.items() if old.get(name) != offset}
    first = frozenset(news.keys() - old.keys()) if certain else frozenset()
    return JournaledBatch(batch, journal.timestamp_ms, news, first, certain)


def _read(path: Path, batch: int) -> JournaledBatch:
    """Read `offsets/N`: a version line, a line of metadata, a line for each source."""
    try:
        _, metadata, *sources = path.read_text(encoding="utf-8").splitlines()
        timestamp = int(load_json(metadata)["batchTimestampMs"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} is not Spark's journal of batch {batch}: {error}", hint="Restore the checkpoint"
        ) from error
    parsed = [parse_offset(line) for line in sources if line.startswith("{")]
    return JournaledBatch(batch, timestamp, {offset.stream: offset for offset in parsed})


def last_offsets(checkpoint: Path) -> dict[str, BatchOffset]:
    """The offset of every source in the newest journaled batch, whether it is committed or will be repeated."""
    numbers = journaled_batches(checkpoint)
    return dict(_read(checkpoint / "offsets" / str(numbers[-1]), numbers[-1]).offsets) if numbers else {}


def first_offsets(checkpoint: Path) -> dict[str, BatchOffset]:
    """The offset of every source in the oldest batch that Spark still has; of that batch or of one before."""
    numbers = journaled_batches(checkpoint)
    return offsets_at(checkpoint, numbers[0]) if numbers else {}


def offsets_at(checkpoint: Path, batch: int) -> dict[str, BatchOffset]:
    """The offset of every source in a batch that Spark still has; of that batch or of one before."""
    return dict(_read(checkpoint / "offsets" / str(batch), batch).offsets)


def journaled_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches whose offsets Spark still has, in order: the last hundred, and one under way."""
    return _numbers(checkpoint / "offsets")


def committed_offsets(checkpoint: Path) -> dict[str, BatchOffset]:
    """The offset of every source in the last batch that Spark committed: what lies before it is never read again."""
    committed = committed_batches(checkpoint)
    return dict(_read(checkpoint / "offsets" / str(committed[-1]), committed[-1]).offsets) if committed else {}


def committed_batches(checkpoint: Path) -> list[int]:
    """Numbers of the batches that Spark has committed, in order."""
    return _numbers(checkpoint / "commits")


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


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
