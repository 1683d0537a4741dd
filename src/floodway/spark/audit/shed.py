"""Does a shed's ledger tell the truth? Reconcile it with the checkpoints of the queries that the shed is in.

A shed counts in Spark's own plan and hears of a batch after its commit (`listener.py`), so unlike a run of `floodway
run` it cannot write its lines inside the batch. Checked are the ledger's own rules, and for every query:

- from the batch on that the shed has left on record in the checkpoint (without a record: from the first line on), every
  batch that Spark has committed has a line, or a gap that says that its counts are lost;
- no line is of a batch that Spark has not committed.

What a batch was offered cannot be derived: a shed stands behind whatever the job does before it. Spark keeps the last
hundred commits. A report takes a moment: what happened in the last seconds is not judged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from floodway.errors import InputError
from floodway.job.ledger.findings import Findings
from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.shed_state import ShedFiles
from floodway.job.store.store import LocalStore
from floodway.spark.query.journal import committed_batches
from floodway.spark.shed.checkpoints import noted_checkpoints, read_record

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
    gaps: int
    """Batches whose counts are lost, and said to be."""
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]


def audit_shed(name: str, files: ShedFiles, now_seconds: float, checkpoints: Sequence[Path] = ()) -> ShedAudit:
    """Reconcile a shed; `checkpoints` are folders to look at beside those that the shed has noted."""
    ledger = Ledger(files.store)
    if not ledger.exists():
        raise InputError(f"no ledger at {files.store.uri}", hint="Has the shed processed a batch? Check its name")
    lines, fold = ledger.read(), ledger.fold()
    found = Findings(fold.differences())
    noted = {query: Path(path) for query, path in noted_checkpoints(files).items()}
    known = {**noted, **{query_of(path): path for path in checkpoints}}
    by_query: dict[str, list[LedgerLine]] = {}
    for line in lines:
        by_query.setdefault(line.query, []).append(line)
    for query, mine in by_query.items():
        _check(name, query, mine, known.get(query), now_seconds, fold, found)
    if lines:
        found.unchecked.append(f"{name}: what batches were offered was not derived: a shed may stand anywhere in a job")
    counted = [line for line in lines if line.reason == Reason.SHEDDER]
    return ShedAudit(
        batches=len({(line.query, line.batch) for line in counted}),
        lines=len(lines),
        offered=sum(line.offered for line in counted),
        kept=sum(line.kept for line in counted),
        dropped=sum(line.dropped for line in counted),
        gaps=sum(len(_batches(line)) for line in lines if line.reason == Reason.GAP),
        differences=tuple(found.differences),
        unchecked=tuple(found.unchecked),
    )


def _check(
    name: str,
    query: str,
    lines: Sequence[LedgerLine],
    checkpoint: Path | None,
    now_seconds: float,
    fold: Fold,
    found: Findings,
) -> None:
    if checkpoint is None:
        found.unchecked.append(f"query {query}: its checkpoint is not on record; name it with --checkpoint")
        return
    committed = committed_batches(checkpoint)
    if not committed:
        found.unchecked.append(f"query {query}: no commits in {checkpoint}")
        return
    record = read_record(LocalStore(checkpoint), name)
    first = min([line.batch for line in lines] + ([] if record is None else [record.since]))
    found.differ(
        f"query {query}, batch {batch}: committed by Spark, not in the ledger"
        for batch in committed
        if batch >= first
        and not fold.holds(query, name, batch)
        and _age(checkpoint, batch, now_seconds) > REPORT_SECONDS
    )
    found.differ(
        f"query {query}, batch {line.batch}: in the ledger, not committed by Spark in {checkpoint}"
        for line in lines
        if line.batch > committed[-1] and now_seconds - line.time_us / 1e6 > REPORT_SECONDS
    )
    if first < committed[0]:
        found.unchecked.append(
            f"query {query}: Spark no longer has the commits of batches {first} to {committed[0] - 1}"
        )


def _age(checkpoint: Path, batch: int, now_seconds: float) -> float:
    try:
        return now_seconds - (checkpoint / "commits" / str(batch)).stat().st_mtime
    except FileNotFoundError:  # removed since it was listed: old
        return REPORT_SECONDS + 1.0


def _batches(line: LedgerLine) -> range:
    return range(line.batch, (line.batch if line.until is None else line.until) + 1)


def query_of(checkpoint: Path) -> str:
    """The id of the query that a checkpoint belongs to."""
    try:
        return str(json.loads((checkpoint / "metadata").read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{checkpoint} is not a checkpoint of a streaming query: {error}",
            hint="Give the folder that the job has as checkpointLocation",
        ) from None
