"""The ledger of one query against Spark's journal and against the inputs that the query read.

    offered by a batch  = end − start, as journaled            kept = what the journaled decision admits, applied again
    offered in all      = end of the last batch − start of the first          ≤ what the input holds

Spark keeps the journal of the last hundred batches. What older ones were offered is checked as a sum: they reach from
where the query began (`spark/query/journal.py`) to where the oldest journaled batch ends. What each of them kept
cannot be derived any more, and is told as unchecked. Batches that an earlier audit has passed are not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.ledger.audit_point import Findings, QueryPoint
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.spark.log.inputs import open_input
from floodway.spark.log.kafka_links import is_topic
from floodway.spark.log.meta import META
from floodway.spark.query.fragment_lines import source_stages
from floodway.spark.query.journal import (
    JournaledBatch,
    journaled_batches,
    last_offsets,
    offsets_at,
    query_key,
    query_name,
    read_batch,
    read_notes,
)


@dataclass(frozen=True, slots=True)
class QueryBooks:
    """One query's lines and checkpoint, the addresses of its inputs by place, and the folder with notes of losses.

    `lines` are those since `passed`, where the last audit has left the query; `after` is where this one leaves it.
    `committed` are batches that Spark had committed before the lines were read, `first` is the first with lines.
    """

    query: str
    lines: Sequence[LedgerLine]
    checkpoint: Path
    inputs: Mapping[str, str]
    lost: Path | None = None
    committed: Sequence[int] = ()
    first: int = 0
    passed: QueryPoint = field(default_factory=QueryPoint)
    after: QueryPoint = field(default_factory=QueryPoint)

    def offered(self, at: str, last: int | None = None) -> int:
        """Tuples that the ledger says a source was offered, up to a batch or in all."""
        return self.passed.sums(at).offered + sum(
            line.offered
            for line in self.lines
            if line.at == at and line.reason == Reason.SHEDDER and (last is None or line.batch <= last)
        )


def query_keys(name: str, checkpoint: Path, written: Iterable[str]) -> list[str]:
    """What a query has written under in this ledger, one key a checkpoint that it has had; at least the present one."""
    keys = [key for key in written if query_name(key) == name]
    now = present_key(name, checkpoint)
    return [*keys, *([] if now in keys or (keys and now == name) else [now])]


def present_key(name: str, checkpoint: Path) -> str:
    """The key of the checkpoint that is there; the name alone if Spark has not made one."""
    return query_key(name, checkpoint) if (checkpoint / "metadata").exists() else name


def check_sources(books: QueryBooks, found: Findings) -> None:
    """All that can be said of a query's sources."""
    if books.query != present_key(query_name(books.query), books.checkpoint):
        found.unchecked.append(
            f"{books.query}: its checkpoint is gone, so the {len(books.lines)} lines of it were not applied again"
        )
        return
    if not journaled_batches(books.checkpoint):
        if books.lines:
            found.unchecked.append(
                f"{books.query}: no journal in {books.checkpoint}, so its lines were not applied again"
            )
    else:
        _committed(books, found)
        _applied_again(books, found)
    for at, address in books.inputs.items():
        _input(books, at, address, found)


def _committed(books: QueryBooks, found: Findings) -> None:
    written = {line.batch for line in books.lines}
    found.differ(
        f"query {books.query}, batch {batch}: committed by Spark, not in the ledger"
        for batch in books.committed
        if batch not in written and batch >= books.first
    )


def _applied_again(books: QueryBooks, found: Findings) -> None:
    """Apply the journaled decisions again and compare; batches join without hole or overlap."""
    by_key = {(line.batch, line.at, line.reason): line for line in books.lines}
    written = {line.batch for line in books.lines}
    journaled = journaled_batches(books.checkpoint)
    # Without the batch before, the first offset may be an old one.
    ends: dict[str, Mapping[int, int]] = dict(books.passed.ends) if books.passed.last in journaled else {}
    _forgotten(books, journaled)
    for batch in journaled:
        if batch not in written:
            continue
        journal = read_batch(books.checkpoint, batch)
        for at in books.inputs:
            shed = by_key.get((batch, at, Reason.SHEDDER))
            # Without the batch before, an offset that the ledger counts nothing for may be an old one.
            if journal.certain or (shed is not None and shed.offered):
                found.differ(_stages(books, journal, at, by_key))
            offset = journal.offsets.get(at)
            if offset is not None:
                if at in ends and dict(ends[at]) != dict(offset.start):
                    found.differences.append(
                        f"query {books.query}, {at}, batch {batch}: starts at {offset.start}, not at {ends[at]}"
                    )
                ends[at] = offset.end
        if batch <= books.after.last:
            books.after.ends = {at: dict(end) for at, end in ends.items()}
        found.differ(_branches(books, journal))


def _forgotten(books: QueryBooks, journaled: Sequence[int]) -> None:
    """Note batches that are passed without having been applied again."""
    batches = [line.batch for line in books.lines if line.batch < journaled[0]]
    if batches:
        first, _, count = books.passed.forgotten or (min(batches), 0, 0)
        books.after.forgotten = first, max(batches), count + len(set(batches))


def _stages(
    books: QueryBooks, journal: JournaledBatch, at: str, by_key: Mapping[tuple[int, str, str], LedgerLine]
) -> list[str]:
    told = []
    place = f"query {books.query}, {at}, batch {journal.batch}"
    for reason, offered, kept in source_stages(journal.offsets.get(at), books.lost):
        line = by_key.get((journal.batch, at, reason))
        if line is None and kept < offered:
            told.append(f"{place}: no line for {offered - kept} tuple(s) lost to {reason}")
        elif line is not None and (line.offered, line.kept) != (offered, kept):
            told.append(
                f"{place}, {reason}: the ledger says {line.kept} of {line.offered}, "
                f"the journaled decision gives {kept} of {offered}"
            )
    return told


def _branches(books: QueryBooks, journal: JournaledBatch) -> list[str]:
    """Branches dropped by the journaled keep; how many that were is for the flow to tell."""
    offset = next(iter(journal.offsets.values()), None)
    if offset is None or not journal.certain:
        return []
    return [
        f"query {books.query}, {line.at}, batch {journal.batch}: the ledger says keep {line.keep_ppm} ppm, "
        f"the journaled decision {offset.arc_keep(line.at)} ppm"
        for line in books.lines
        if line.batch == journal.batch
        and line.reason == Reason.SHEDDER
        and line.at not in books.inputs
        and line.keep_ppm != offset.arc_keep(line.at)
    ]


def _input(books: QueryBooks, at: str, address: str, found: Findings) -> None:
    """One input: it holds what was read of it, and what was read of it adds up from the first batch on."""
    last = last_offsets(books.checkpoint).get(at)
    offered = books.offered(at)
    place = f"query {books.query}, {at}"
    try:
        if not is_topic(address) and not (Path(address) / META).exists():
            if offered:
                found.differences.append(f"{place}: the ledger says {offered} tuples were offered, no log at {address}")
            return
        backend = open_input(address)
        earliest, latest = backend.earliest(), backend.latest()
    except FloodwayError as error:
        found.unchecked.append(f"{at}: {address} was not asked how far it reaches: {error.message}")
        return
    if last is None:
        if offered > sum(latest.values()):
            found.differences.append(
                f"{place}: the ledger says {offered} tuples were offered, {address} holds {sum(latest.values())}"
            )
        return
    found.differ(
        f"{place}: was read up to tuple {end} of partition {partition}, {address} ends at {latest.get(partition, 0)}"
        for partition, end in sorted(last.end.items())
        if end > latest.get(partition, 0)
    )
    _sum(books, at, earliest, found)


def _sum(books: QueryBooks, at: str, earliest: Mapping[int, int], found: Findings) -> None:
    """What batches before the journal were offered, against where the query began."""
    journaled = journaled_batches(books.checkpoint)
    oldest = journaled[0]
    # Of batches before the first with lines only the sums are there.
    upto = max(oldest, books.first - 1)
    if oldest == 0 or upto not in journaled or upto > max((line.batch for line in books.lines), default=upto):
        return
    if not books.passed.sums(at).known:
        found.unchecked.append(f"{books.query}, {at}: other queries wrote to the removed lines, so no sum was checked")
        return
    offset = offsets_at(books.checkpoint, upto).get(at)
    began = read_notes(books.checkpoint).began.get(at)
    if began is None and not any(earliest.values()):
        began = {}  # an input that has lost nothing was read from its first tuple
    if began is None:
        found.unchecked.append(
            f"{books.query}, {at}: where it began is not on record, so batches 0 to {upto - 1} were not summed up"
        )
        return
    reached = 0 if offset is None else sum(end - began.get(partition, 0) for partition, end in offset.end.items())
    if (said := books.offered(at, upto)) != reached:
        found.differences.append(
            f"query {books.query}, {at}, batches 0 to {upto}: the ledger says {said} tuples were offered, "
            f"by its positions the query has read {reached}"
        )
    if books.after.forgotten is not None:
        first, last, count = books.after.forgotten
        some = f"{count} of the " if count <= last - first else ""
        found.unchecked.append(
            f"{books.query}, {at}: Spark no longer has the decisions of {some}batches {first} to {last}; what they "
            "were offered was only summed up, what each of them kept was not derived again"
        )
