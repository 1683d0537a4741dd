"""Batches before the first report of a query that the ledger does not know: are there any, and what became of them?"""

from __future__ import annotations

from dataclasses import dataclass

from floodway.job.decision import Mode
from floodway.job.store.store import Store
from floodway.spark.shed.checkpoints import Record, first_record
from floodway.spark.shed.report import BatchReport


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
