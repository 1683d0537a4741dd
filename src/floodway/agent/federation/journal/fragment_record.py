"""The batches of a fragment on record beside its ledger, on the shared storage: both move with the fragment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from floodway.agent.loop.finished import finished_batch
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.member_network import stream_name
from floodway.job.ledger.fold import Counts
from floodway.job.status.batches import BatchLog, BatchReader
from floodway.job.status.latencies import Sketch
from floodway.job.store.store import Store, StoreError
from floodway.spark.query.fragment_query import BatchReport


class FragmentRecord:
    """Writes the batches that one participant runs; who ran the fragment before has ended when the first one ends."""

    def __init__(self, spec: FragmentSpec, store: Store) -> None:
        self._spec = spec
        self._store = store
        self._log: BatchLog | None = None
        self._cut_seconds: float | None = None

    def ended(self, report: BatchReport, cost: float) -> None:
        """Put a batch on record; `cost` in CPU-seconds per tuple."""
        counts = Counts.of(report.lines)
        batch = finished_batch(
            report,
            counts,
            inputs=[stream_name(self._spec, one) for one in self._spec.logs],
            outputs=(self._spec.name,),
            work_seconds=counts.kept.total() * cost,
        )
        if batch.kept and not batch.latencies.count:
            # An entry that drops `_arrival`: its tuples came at any time since the batch before was cut.
            waited = 0.0 if self._cut_seconds is None else (report.cut_seconds - self._cut_seconds) / 2
            batch = replace(batch, latencies=Sketch.of([(report.seconds + waited, batch.kept)]))
        self._cut_seconds = report.cut_seconds
        # A measurement is not worth the query; what the disk lacks shows where the ledger is written.
        with suppress(StoreError):
            if self._log is None:
                before = BatchReader(self._store)
                before.advance()
                self._log = BatchLog(self._store, before.last)
            self._log.append(batch)
