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
from floodway.spark.audit.sources import QueryBooks, check_sources
from floodway.spark.query.catalogue_query import QueryFiles


def audit_fragment(name: str, inputs: Iterable[str], files: QueryFiles) -> Audit:
    """Reconcile one fragment; an empty list of differences means that every tuple is accounted for."""
    ledger = Ledger(files.ledger)
    lines = [line for line in ledger.read() if line.query == name]
    found = Findings([*ledger.torn_now(), *Fold(lines).differences()])
    addresses = {f"{name}.{one}": str(files.logs[one]) for one in inputs}
    check_sources(QueryBooks(name, lines, files.checkpoint, addresses), found)
    for at in addresses:
        if said := malformed(lines, at):
            check_log(files.dead_letters(at.removeprefix(f"{name}.")), name, f"dead letters of {at}", said, found)
    check_log(files.output, name, name, delivered(lines, name), found)
    return Audit(
        batches=len({line.batch for line in lines}),
        lines=len(lines),
        tuples_offered=sum(line.offered for line in lines if line.reason == Reason.SHEDDER),
        tuples_delivered=sum(line.kept for line in lines if line.reason == Reason.DELIVERED),
        differences=tuple(found.differences),
        unchecked=tuple(found.unchecked),
    )
