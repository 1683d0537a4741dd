"""What ties a shed and the checkpoints of its queries together, for restarts and for `floodway audit`.

- `checkpoints.json` in the shed's state, {"6f0c…": {"place": "/data/checkpoints/clicks", "since": 0}}: query id, as in
  the ledger, folder, and the first batch that ran with the shed; the folder alone before version 0.2. A shed learns its
  query's name from Spark's events, and its checkpoint from the query itself when it starts. Whether it is in a query at
  all shows in the query's first progress: until then all that start are noted.
- `floodway/NAME.json` in a query's checkpoint, {"since": 17, "state": "file:///…"}: from which batch on the shed has
  counted, and where. A state that was lost cannot say so itself.
- `floodway/NAME.6859aad9/control.json` there: a copy of the shed's decisions (`state_copies.py`).

Which positions of its source a batch read stands in Spark's progress, or else in the checkpoint.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from floodway.errors import FloodwayError, InputError
from floodway.job.decision import Mode
from floodway.job.ledger.facts import OffsetRange
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json
from floodway.planning.lag import Waiting
from floodway.spark.session.stores import open_store
from floodway.spark.shed.open_batches import journaled_batches
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.job.places import ShedFiles
    from floodway.spark.shed.report import BatchReport
    from floodway.spark.source.offsets import BatchOffset

log = logging.getLogger(__name__)

FIRST_BATCH = "Spark does not say where the first batch of a query begins"
NOT_RUN = "Spark repeated a batch whose results its sink had already, so nothing was read or counted"

_PARTITION = re.compile(r"[0-9]{1,10}")

CHECKPOINTS = "checkpoints.json"
MOST = 50
"""Checkpoints kept: a job that is started without one has a new one every time."""


def positions(sources: Sequence[Mapping[str, Any]]) -> tuple[tuple[OffsetRange, ...], str]:
    """The ranges of Kafka or of a Floodway source that a batch read, and why there are none.

    `sources` are those of a progress, each with `description`, `startOffset` and `endOffset`.
    """
    ranges: list[OffsetRange] = []
    if sources and all(map(_is_unread, sources)) and any(one["startOffset"] != one["endOffset"] for one in sources):
        return (), NOT_RUN
    for source in sources:
        own = _own_offset(source["endOffset"])
        if own is not None:
            if len(sources) > 1:
                return (), f"{source['description']} is one of {len(sources)} sources"
            if source["startOffset"] == source["endOffset"]:
                return (), ""
            return _own_ranges(own)
        if "kafka" not in source["description"].lower():
            return (), f"{source['description']} cannot be read again by position"
        if source["startOffset"] in (None, "null"):
            return (), FIRST_BATCH
        starts, ends = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        if starts is None or ends is None:
            return (), f"{source['description']} tells no offsets"
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                start = starts.get(topic, {}).get(partition, 0)
                if end > start:
                    ranges.append(OffsetRange(topic, int(partition), int(start), int(end)))
    return tuple(ranges), ""


def _own_offset(text: object) -> BatchOffset | None:
    """The end of a batch as a Floodway source journals it; None for an offset of another source."""
    if not isinstance(text, (str, Mapping)) or "stream" not in text:
        return None
    from floodway.spark.source.offsets import parse_offset  # queries on other sources need none of it

    try:
        return parse_offset(text)
    except InputError:
        return None


def _own_ranges(offset: BatchOffset) -> tuple[tuple[OffsetRange, ...], str]:
    """What a Floodway source read; where it dropped by itself, positions alone do not tell what it handed over."""
    rule = offset.admission
    if rule.keep_ppm < PPM or rule.judged or rule.windows is not None or rule.keys is not None:
        return (), f"the source of {offset.stream} drops tuples by a decision of its own"
    return tuple(OffsetRange(offset.stream, *one, floodway=True) for one in offset.ranges()), ""


def _is_unread(source: Mapping[str, Any]) -> bool:
    """Whether Spark repeats the batch, for which it asks no source for its latest offset, and reads nothing.

    It does so where the driver died between the commit of the sink and its own: file sinks know their batches again.
    """
    return source.get("numInputRows") == 0 and source.get("latestOffset", "") in (None, "null")


def journaled_ranges(checkpoint: Store, batch: int) -> tuple[OffsetRange, ...]:
    """The ranges that a batch read, by the checkpoint of its query; empty where it does not tell.

    Spark journals the end of every batch, and of the first one Kafka's source leaves where it began.
    """
    try:
        ends = _journaled(checkpoint, batch)
        starts = _journaled(checkpoint, batch - 1) or [None] * len(ends)
        sources = [
            {"description": "Kafka", "startOffset": start or _first(checkpoint, number), "endOffset": end}
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        return positions(sources)[0]
    except (StoreError, ValueError, LookupError):
        return ()


def _journaled(checkpoint: Store, batch: int) -> list[str | None]:
    """The end of a batch in every source; none where there is no such batch."""
    raw = checkpoint.read(f"offsets/{batch}")
    lines = [] if raw is None else raw.decode().splitlines()[2:]
    return [None if line == "-" else line for line in lines]


def _first(checkpoint: Store, source: int) -> str | None:
    raw = checkpoint.read(f"sources/{source}/0")
    return None if raw is None else raw.decode().partition("\n")[2]


def backlog(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Tuples that were there when a batch was cut and that it left in the source: latest minus end offset.

    0 for a source that hands over all it has. None where the source does not tell, and for several sources, of which
    nothing says which one the tuples wait in.
    """
    if len(sources) != 1:
        return None
    own, latest = _own_offset(sources[0]["endOffset"]), _offsets(sources[0].get("latestOffset"))
    ends = _offsets(sources[0]["endOffset"]) if own is None else {"pos": {str(at): end for at, end in own.end.items()}}
    if not latest or ends is None:
        return None
    return sum(
        max(0, int(last) - int(ends.get(topic, {}).get(partition, last)))
        for topic, partitions in latest.items()
        for partition, last in partitions.items()
    )


def waiting(sources: Sequence[Mapping[str, Any]]) -> tuple[Waiting, ...]:
    """What a batch left in every partition of Kafka that it read; empty where Spark does not tell."""
    found: list[Waiting] = []
    for source in sources:
        latest, ends = _offsets(source.get("latestOffset")), _offsets(source["endOffset"])
        if "kafka" in source["description"].lower() and latest and ends is not None:
            found += [
                Waiting(topic, int(partition), int(ends[topic][partition]), int(last))
                for topic, partitions in latest.items()
                for partition, last in partitions.items()
                if partition in ends.get(topic, {})
            ]
    return tuple(found)


def _offsets(text: object) -> dict[str, dict[str, int]] | None:
    try:
        found = load_json(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(map(_is_positions, found.values())) else None


def _is_positions(part: object) -> bool:
    """Whether offsets are whole numbers by partition: other sources tell theirs in any form."""
    return isinstance(part, dict) and all(
        _PARTITION.fullmatch(at) and type(offset) is int for at, offset in part.items()
    )


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
    """What is noted; nothing of a damaged file, which is made again as queries start."""
    raw = state.read(CHECKPOINTS)
    try:
        return {} if raw is None else {str(query): _note(note) for query, note in load_json(raw).items()}
    except (ValueError, AttributeError, LookupError, TypeError):
        log.error("%s/%s is damaged: give `floodway audit` the checkpoints of ended queries", state.uri, CHECKPOINTS)
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
    """The record of a shed in a checkpoint; None if there is none. StoreError if it cannot be understood."""
    raw = checkpoint.read(_record(shed))
    if raw is None:
        return None
    try:
        body = load_json(raw)
        return Record(int(body["since"]), str(body["state"]))
    except (ValueError, LookupError, TypeError, OverflowError):
        raise StoreError(
            f"{checkpoint.uri}/{_record(shed)} is damaged: from which batch on the shed has counted is not known",
            hint="Restore it, or remove it: it then begins with the next batch",
        ) from None


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


def _record(shed: str) -> str:
    return f"floodway/{shed}.json"


@dataclass(frozen=True, slots=True)
class StateFound:
    """The state of a shed as this process has found it: whether it is a new one, and when it was opened."""

    shed: str
    place: str
    is_new: bool
    opened_us: int


@dataclass(frozen=True, slots=True)
class EarlierBatches:
    """From which batch on nothing is on record (None: nothing is missing), and what is to be said of it."""

    since: int | None = None
    words: tuple[str, ...] = ()


def earlier_batches(
    report: BatchReport, checkpoint: Store | None, state: StateFound, mode: Mode, *, restored: bool
) -> EarlierBatches:
    """A query that the ledger does not know is new; unless its checkpoint, where the shed leaves a record, knows it.

    `restored` says that decisions were found in the state, or in its copy.
    """
    query, batch = report.query, report.batch
    if checkpoint is None:
        if not state.is_new or batch == 0:
            return EarlierBatches()
        unknown = (
            f"batches 0 to {batch - 1} of query {query} are not accounted for, and its checkpoint cannot be read from "
            f"here: if this shed was in them, its state and the operator's mode are lost; the mode is {mode}"
        )
        return EarlierBatches(words=(unknown,))
    record = first_record(checkpoint, state.shed, Record(batch, state.place))
    if record.since >= batch:
        return EarlierBatches()
    lost = f"batches {record.since} to {batch - 1} of query {query} are not accounted for"
    if state.is_new or record.state != state.place:
        words = [f"the state that this shed had at {record.state} is not here: {lost}; the mode is {mode}"]
    else:
        words = [f"{lost}: the driver ended before it had their reports"]
    if not restored and (report.batch_time_us or report.started_us) < state.opened_us:
        words.append(f"batch {batch} of query {query} is a replay; its first decision is not known")
    return EarlierBatches(record.since, tuple(words))
