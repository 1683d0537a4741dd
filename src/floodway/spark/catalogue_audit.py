"""Does a moving fragment's ledger tell the truth? Reconcile it with its checkpoint and its output, to the tuple.

The ledger, the checkpoint and the output are on the storage that the participants share, so the answer is the same
whoever ran which batch: a batch that two participants ran, around a move, has one set of lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from floodway.spark.audit import Audit, against_journal, against_sink
from floodway.spark.catalogue_query import QueryFiles
from floodway.spark.ledger import Ledger, Reason, reconcile


def audit_fragment(name: str, inputs: Iterable[str], files: QueryFiles) -> Audit:
    """Reconcile one fragment; an empty list of differences means that every tuple is accounted for."""
    sources = [f"{name}.{one}" for one in inputs]
    lines = [line for line in Ledger(files.ledger).read() if line.query == name]
    return Audit(
        batches=len({line.batch for line in lines}),
        lines=len(lines),
        tuples_offered=sum(line.offered for line in lines if line.reason == Reason.SHEDDER),
        tuples_delivered=sum(line.kept for line in lines if line.reason == Reason.DELIVERED),
        differences=(
            *reconcile(lines),
            *against_journal(files.checkpoint, name, sources, lines),
            *against_sink(files.output, name, name, lines),
        ),
        unchecked=(),
    )
