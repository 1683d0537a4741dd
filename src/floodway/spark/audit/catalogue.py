"""Does a moving fragment's ledger tell the truth? Reconcile it with its checkpoint, inputs and output, to the tuple.

The ledger, the checkpoint and the output are on the storage that the participants share, so the answer is the same
whoever ran which batch: a batch that two participants ran, around a move, has one set of lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from floodway.job.findings import Audit, Findings, delivered, malformed
from floodway.job.fold import Fold
from floodway.job.ledger import Ledger, Reason
from floodway.spark.audit.sinks import check_log
from floodway.spark.audit.sources import QueryBooks, check_sources, query_keys
from floodway.spark.query.catalogue_query import QueryFiles
from floodway.spark.query.dead_letters import DEAD
from floodway.spark.query.journal import query_name
from floodway.spark.query.sinks import writer_of


def audit_fragment(name: str, inputs: Iterable[str], files: QueryFiles) -> Audit:
    """Reconcile one fragment; an empty list of differences means that every tuple is accounted for."""
    ledger = Ledger(files.ledger)
    lines = [line for line in ledger.read() if query_name(line.query) == name]
    found = Findings([*ledger.torn_now(), *Fold(lines).differences()])
    addresses = {f"{name}.{one}": str(files.logs[one]) for one in inputs}
    keys = query_keys(name, files.checkpoint, dict.fromkeys(line.query for line in lines))
    for query in keys:
        mine = [line for line in lines if line.query == query]
        check_sources(QueryBooks(query, mine, files.checkpoint, addresses), found)
        sinks = {at: (files.dead_letters(at.removeprefix(f"{name}.")), malformed(mine, at)) for at in addresses}
        for at, (log, said) in sinks.items():
            if said:
                others = {writer_of(key, DEAD) for key in keys if key != query}
                check_log(log, writer_of(query, DEAD), f"dead letters of {at}", said, found, others)
        others = {writer_of(key, name) for key in keys if key != query}
        check_log(files.output, writer_of(query, name), name, delivered(mine, name), found, others)
    return Audit(
        batches=len({(line.query, line.batch) for line in lines}),
        lines=len(lines),
        tuples_offered=sum(line.offered for line in lines if line.reason == Reason.SHEDDER),
        tuples_delivered=sum(line.kept for line in lines if line.reason == Reason.DELIVERED),
        differences=tuple(found.differences),
        unchecked=tuple(found.unchecked),
    )
