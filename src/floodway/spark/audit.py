"""Does the ledger tell the truth? Reconcile it with Spark's journal, with the logs and with the sinks, to the tuple.

For every query of a run:

- the ledger's own rules hold: offered = kept + dropped, no batch missing, no replay that counted otherwise;
- every batch that Spark committed has its lines, and each line is what the journaled decision gives when applied again;
- the batches follow each other without a hole or an overlap, and reach no further than the log does;
- what the ledger says was delivered to a log is what lies there under the batch's tag, no tuple more or less.

Spark keeps the journal of the last hundred batches; older lines are checked by the ledger's own rules and the sinks'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from floodway.network.model import Network
from floodway.spark.fragment_lines import source_stages
from floodway.spark.fragments import fragments
from floodway.spark.journal import committed_batches, read_batch
from floodway.spark.layout import Layout
from floodway.spark.ledger import Ledger, LedgerLine, Reason
from floodway.spark.log import open_log
from floodway.spark.log.listing import Listing
from floodway.spark.log.meta import META
from floodway.spark.log.segments import open_segment
from floodway.spark.logs import sink_log


@dataclass(frozen=True, slots=True)
class Audit:
    """What was checked, what did not agree, and what could not be checked from here."""

    batches: int
    lines: int
    tuples_offered: int
    tuples_delivered: int
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]


def audit(network: Network, layout: Layout, nodes: Sequence[str] = ()) -> Audit:
    """Reconcile a run's ledger; an empty list of differences means that every tuple is accounted for."""
    lines = list(Ledger(layout.ledger).read())
    differences = list(Ledger(layout.ledger).reconcile())
    unchecked: list[str] = []
    batches = 0
    for node in nodes or tuple(network.nodes):
        for fragment in fragments(network, node):
            query = f"{fragment.node}.{fragment.name}"
            mine = [line for line in lines if line.query == query]
            batches += len({line.batch for line in mine})
            differences += against_journal(
                layout.checkpoint(fragment),
                query,
                [spec.location or spec.name for spec in fragment.sources],
                mine,
                lost=layout.lost,
            )
            for sink in (*fragment.outputs, *map(str, fragment.cut)):
                log = sink_log(network, layout, sink)
                if log is None:
                    unchecked.append(f"{sink}: not a log, so its tuples were not counted")
                else:
                    differences += against_sink(log, query, sink, mine)
    return Audit(
        batches=batches,
        lines=len(lines),
        tuples_offered=sum(
            line.offered for line in lines if line.reason == Reason.SHEDDER and line.at in network.streams
        ),
        tuples_delivered=sum(
            line.kept for line in lines if line.reason == Reason.DELIVERED and line.at in network.outputs
        ),
        differences=tuple(differences),
        unchecked=tuple(unchecked),
    )


def against_journal(
    checkpoint: Path, query: str, sources: Sequence[str], lines: Sequence[LedgerLine], lost: Path | None = None
) -> Iterator[str]:
    """Apply the journaled decisions again and compare; check that batches join without hole or overlap."""
    by_key = {(line.batch, line.at, line.reason): line for line in lines}
    written = {line.batch for line in lines}
    for batch in committed_batches(checkpoint):
        if batch not in written:
            yield f"query {query}, batch {batch}: committed by Spark, not in the ledger"
    ends: dict[str, Mapping[int, int]] = {}
    for batch in sorted(written):
        if not (checkpoint / "offsets" / str(batch)).exists():
            continue
        journal = read_batch(checkpoint, batch)
        for at in sources:
            for reason, offered, kept in source_stages(journal.offsets.get(at), lost):
                line = by_key.get((batch, at, reason))
                if line is None and kept < offered:
                    yield f"query {query}, {at}, batch {batch}: no line for {offered - kept} tuple(s) lost to {reason}"
                elif line is not None and (line.offered, line.kept) != (offered, kept):
                    yield (
                        f"query {query}, {at}, batch {batch}, {reason}: the ledger says {line.kept} of "
                        f"{line.offered}, the journaled decision gives {kept} of {offered}"
                    )
            offset = journal.offsets.get(at)
            if offset is not None:
                if at in ends and dict(ends[at]) != dict(offset.start):
                    yield f"query {query}, {at}, batch {batch}: starts at {offset.start}, not at {ends[at]}"
                ends[at] = offset.end


def against_sink(log: Path, query: str, sink: str, lines: Sequence[LedgerLine]) -> Iterator[str]:
    """Compare what was delivered with what lies in the log under each batch's tag."""
    said = {line.batch: line.kept for line in lines if line.at == sink and line.reason == Reason.DELIVERED}
    if not (log / META).exists():
        if any(said.values()):
            total = sum(said.values())
            yield f"{sink}: the ledger says {total} tuples were delivered, but there is no log {log}"
        return
    found, merged = tuples_by_batch(log, query)
    last = max(said, default=-1)
    for batch in sorted((said.keys() | found.keys()) - merged.keys()):
        # The last batch may have reached the sink and not the ledger: it will be repeated, and found there.
        if batch <= last and said.get(batch, 0) != found.get(batch, 0):
            yield (
                f"{sink}, batch {batch}: the ledger says {said.get(batch, 0)} tuples were delivered, "
                f"the log holds {found.get(batch, 0)}"
            )
    together = sum(merged.values()) + sum(found[batch] for batch in merged)
    if (expected := sum(said.get(batch, 0) for batch in merged)) != together:
        yield f"{sink}, compacted batches: the ledger says {expected} tuples were delivered, the log holds {together}"


def tuples_by_batch(log: Path, query: str) -> tuple[Counter[int], Counter[int]]:
    """Tuples of each batch by the tags of its segments; second, the batches that compaction merged with others.

    A merged segment tells which batches it holds, not how many tuples of each: its count stands with its first batch.
    """
    meta = open_log(log)
    found: Counter[int] = Counter()
    merged: Counter[int] = Counter()
    for partition in range(meta.partitions):
        listing = Listing(meta.partition_path(partition))
        listing.refresh()
        for name in listing.chain:
            tags = open_segment(listing.folder / str(name), name, meta.stored_schema).tags
            batches = sorted({int(tag.split(":")[1]) for tag in tags if tag.split(":")[0] == query})
            if len(batches) == 1:
                found[batches[0]] += name.count
            elif batches:
                merged.update(dict.fromkeys(batches, 0))
                merged[batches[0]] += name.count
    return found, merged
