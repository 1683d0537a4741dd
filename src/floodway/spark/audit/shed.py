"""Does a shed's ledger tell the truth? Reconcile it with the checkpoints of the queries that the shed is in.

A shed counts in Spark's own plan and hears of a batch after its commit (`spark/shed/listener.py`), so unlike a run of
`floodway run` it cannot write its lines inside the batch. Checked are the ledger's own rules, and for every query:

- from the batch on that the shed has left on record in the checkpoint (without a record: from the first line on), every
  batch that Spark has committed has a line, or a gap that says that its counts are lost;
- no line is of a batch that Spark has not committed.

What a batch was offered cannot be derived: a shed stands behind whatever the job does before it. Spark keeps the last
hundred commits. A report takes a moment: what happened in the last seconds is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodway.errors import FloodwayError, InputError
from floodway.job.ledger.audit_point import Findings, open_ledger
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json
from floodway.spark.session.stores import open_store
from floodway.spark.shed.checkpoints import Record, noted_checkpoints, read_record
from floodway.spark.shed.control_file import LATE
from floodway.spark.shed.open_batches import journaled_batches

REPORT_SECONDS = 10.0
"""How long after its commit a batch may be without a line."""


@dataclass(frozen=True, slots=True)
class ShedAudit:
    """What was checked, in batches and tuples; what did not agree; what could not be checked from here."""

    batches: int
    lines: int
    offered: int
    kept: int
    dropped: int
    recovered: int
    """Dropped tuples that a backfill has processed."""
    lost: int
    """Dropped tuples that a backfill no longer found."""
    gaps: int
    """Batches whose counts are lost, and said to be."""
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def remaining(self) -> int:
        """Dropped tuples of which no backfill has told anything. At 0, kept + recovered + lost = offered.

        Of batches without counts tuples may come back that were never counted as dropped.
        """
        return max(self.dropped - self.recovered - self.lost, 0)


def audit_shed(
    name: str, files: ShedFiles, now_seconds: float, checkpoints: Sequence[str] = (), *, full: bool = False
) -> ShedAudit:
    """Reconcile a shed; `checkpoints` are folders or URIs to look at beside those that the shed has noted.

    Lines that an earlier audit has found committed are not read again, unless `full`.
    """
    if not Ledger(files.store).exists():
        raise InputError(f"no ledger at {files.store.uri}", hint="Has the shed processed a batch? Check its name")
    ledger = open_ledger(files.store, full=full)
    fold, found = ledger.fold, Findings(ledger.differences, ledger.unchecked)
    given = [open_store(place) for place in checkpoints]
    known = {**_noted(files, found), **{query_of(checkpoint): checkpoint for checkpoint in given}}
    for query in ledger.lines:
        committed = _check(name, query, ledger.query(query)[1], known.get(query), now_seconds, fold, found)
        if committed is not None:
            ledger.settle(query, min(committed, ledger.newest(query)))
    dropped = sum(fold.total.by_place().get(name, {}).values())
    recovered, lost = fold.total.recovered[name], fold.total.lost[name]
    if recovered + lost > dropped and not fold.lost_batches:
        found.differ([f"{name}: {dropped} tuples were dropped, and {recovered + lost} of them recovered or lost"])
    if fold.lines:
        found.unchecked.append(f"{name}: what batches were offered was not derived: a shed may stand anywhere in a job")
    status = files.read_status()
    if status is not None and status.shed is not None and status.shed.late_writes:
        found.unchecked.append(f"{name}: {LATE.format(count=status.shed.late_writes)}")
    return ShedAudit(
        batches=sum(batches.count() for batches in fold.batches(name).values()) - fold.lost_batches,
        lines=fold.lines,
        offered=fold.total.offered[name],
        kept=fold.total.kept[name],
        dropped=dropped,
        recovered=recovered,
        lost=lost,
        gaps=fold.lost_batches,
        differences=tuple(found.differences),
        unchecked=(*found.unchecked, *ledger.close(found.differences)),
    )


def _check(
    name: str,
    query: str,
    lines: Sequence[LedgerLine],
    checkpoint: Store | None,
    now_seconds: float,
    fold: Fold,
    found: Findings,
) -> int | None:
    """Compare one query; the last batch that Spark has committed, as far as that is known."""
    if checkpoint is None:
        found.unchecked.append(f"query {query}: its checkpoint is not on record; name it with --checkpoint")
        return None
    committed = sorted(journaled_batches(checkpoint, "commits"))
    if not committed:
        found.unchecked.append(f"query {query}: no commits in {checkpoint.uri}")
        return None
    record = _record(checkpoint, name, query, found)
    counted = fold.batches(name).get(query)
    first = min([span[0] for span in counted.spans[:1]] if counted else [], default=committed[-1] + 1)
    first = first if record is None else min(first, record.since)
    found.differ(
        f"query {query}, batch {batch}: committed by Spark, not in the ledger"
        for batch in committed
        if batch >= first
        and not fold.holds(query, name, batch)
        and _age(checkpoint, batch, now_seconds) > REPORT_SECONDS
    )
    found.differ(
        f"query {query}, batch {line.batch}: in the ledger, not committed by Spark in {checkpoint.uri}"
        for line in lines
        if line.batch > committed[-1] and now_seconds - line.time_us / 1e6 > REPORT_SECONDS
    )
    if first < committed[0]:
        found.unchecked.append(
            f"query {query}: Spark no longer has the commits of batches {first} to {committed[0] - 1}"
        )
    return committed[-1]


def _record(checkpoint: Store, name: str, query: str, found: Findings) -> Record | None:
    """From which batch on the shed has counted; None where nothing tells."""
    try:
        return read_record(checkpoint, name)
    except StoreError as error:
        found.unchecked.append(f"query {query}: {error.message}")
        return None


def _noted(files: ShedFiles, found: Findings) -> dict[str, Store]:
    """The checkpoints that the shed has noted, by query."""
    stores: dict[str, Store] = {}
    for query, place in noted_checkpoints(files).items():
        try:
            stores[query] = open_store(place)
        except FloodwayError as error:
            found.unchecked.append(f"query {query}: {error.message}")
    return stores


def _age(checkpoint: Store, batch: int, now_seconds: float) -> float:
    written = checkpoint.modified(f"commits/{batch}")
    # One that was removed since it was listed is old.
    return REPORT_SECONDS + 1.0 if written is None else now_seconds - written


def query_of(checkpoint: Store) -> str:
    """The id of the query that a checkpoint belongs to."""
    try:
        return str(load_json(checkpoint.read("metadata") or b"")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{checkpoint.uri} is not a checkpoint of a streaming query: {error}",
            hint="Give the folder that the job has as checkpointLocation",
        ) from None
