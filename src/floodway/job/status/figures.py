"""What the ledger and the batches of a job come to: added up by the job as it runs, and by whoever reads its state.

Both use this class, so the status that a job writes and what a page or a report finds on disk are the same numbers.
"Now" is the last `WINDOW_SECONDS` before the end of the last batch, and at least that batch: sources hand over whole
blocks, so a shorter window would show the rhythm of the batches and not of the load.

The state of a job read as it grows: its ledger and its batches, each line once, added up.

A ledger that was removed and written anew (a second run in the same folder) is another ledger, although it has the same
name: everything of the job is then read from the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from floodway.job.ledger.fold import Counts, Fold
from floodway.job.ledger.ledger import LedgerTail
from floodway.job.ledger.ledger_line import LedgerLine
from floodway.job.ledger.timeline import Timeline
from floodway.job.status.batches import Batch, BatchReader, Latency, Sketch
from floodway.job.status.status import LedgerPart, Place, Rates, Status, at_inputs
from floodway.job.store.store import Store

BATCH_SECONDS = 4.0
"""How long the next batch is awaited at least before its absence counts."""


class Figures:
    """Sums of a job's ledger lines and of the latencies of its batches, in all and over time.

    >>> figures = Figures()
    >>> for second in range(100, 110):
    ...     line = LedgerLine("q", second, "s", "shedder", 300, 200, 100, time_us=second * 1_000_000)
    ...     figures.add([line], Batch("q", second, second, second + 1, latencies=Sketch.of([(1.5, 200)])))
    >>> figures.places({"s": 0.7}, at_seconds=110.5)["s"].rates, figures.latency(2.0).mean
    (Rates(offered=300.0, kept=200.0), 1.5)
    """

    def __init__(self) -> None:
        self.fold = Fold()
        self.batch_count = 0
        self.latencies = Sketch()
        self.latency_timeline: Timeline[Sketch] = Timeline(Sketch)

    def add(self, lines: Iterable[LedgerLine], batch: Batch) -> None:
        """Take in a finished batch: its ledger lines, unless it is a repeated one, and the rest of its figures."""
        fresh = [line for line in lines if not self.fold.holds(line.query, line.at, line.batch)]
        self.fold.add(fresh)
        self.add_batch(batch)

    def add_batch(self, batch: Batch) -> None:
        """The part of a batch that the ledger does not have."""
        self.batch_count += batch.batches
        self.latencies.merge(batch.latencies)
        if batch.latencies.count:
            for sketch in self.latency_timeline.at(batch.query, int(batch.ended_seconds)):
                sketch.merge(batch.latencies)

    def now(self, at_seconds: float) -> tuple[Counts, int]:
        """Counts of the last batches before a time, and the seconds in which their tuples came; 0 before the first.

        The window ends with the last batch, because it would lack the one under way; once that has been awaited for
        long there is none, and the window ends now.
        """
        end = self._end(self.fold.timeline, at_seconds)
        return (Counts(), 0) if end is None else self.fold.timeline.latest(end)

    def latency(self, target: float | None, at_seconds: float = math.inf) -> Latency:
        """Of the results of the last batches; `at_seconds` is the time now, where batches are stamped by that clock."""
        end = self.latency_timeline.end(at_seconds)
        return Latency(target=target) if end is None else self.latency_timeline.latest(end)[0].latency(target)

    def places(
        self,
        keeps: Mapping[str, float],
        at_seconds: float,
        *,
        arriving: Mapping[str, float] | None = None,
        waiting: Mapping[str, int] | None = None,
    ) -> dict[str, Place]:
        """Every place that is counted or planned for."""
        total, dropped, (recent, seconds) = self.fold.total, self.fold.total.by_place(), self.now(at_seconds)
        planned, left, counted = arriving or {}, waiting or {}, self.fold.timeline.last is not None
        return {
            at: Place(
                keep=keeps.get(at, 1.0),
                arriving=planned.get(at),
                waiting=left.get(at),
                rates=_rates(recent, at, seconds) if counted else Rates(),
                offered=total.offered[at],
                kept=total.kept[at],
                dropped=dropped.get(at, {}),
            )
            for at in dict.fromkeys((*total.offered, *keeps, *planned))
        }

    @staticmethod
    def _end(timeline: Timeline[Counts], at_seconds: float) -> int | None:
        last = timeline.end(at_seconds)
        if last is None:
            return None
        patience = max(BATCH_SECONDS, 2.0 * timeline.latest(last, 1)[1])
        return last if at_seconds - last <= patience else int(at_seconds)

    def ledger(self) -> LedgerPart:
        """Whether the ledger adds up."""
        return LedgerPart(self.fold.lines, tuple(self.fold.differences()))

    def refreshed(self, status: Status) -> Status:
        """A status with the figures that are on record: of the job as it writes one, or newer ones than it has told.

        Its places say what is planned for them.
        """
        places = self.places(
            {at: place.keep for at, place in status.places.items()},
            max(status.time, float(self.fold.timeline.end(status.time) or 0)),
            arriving={at: place.arriving for at, place in status.places.items() if place.arriving is not None},
            waiting={at: place.waiting for at, place in status.places.items() if place.waiting is not None},
        )
        status = replace(status, places=places)
        rates, _, totals = at_inputs(places, status.inputs)
        return replace(
            status,
            latency=self.latency(status.latency.target, status.time) if self.latencies.count else status.latency,
            rates=rates,
            totals=replace(totals, recovered=self.fold.total.recovered.total()),
            batch_count=self.batch_count or status.batch_count,
            delivered=dict(self.fold.total.delivered),
            ledger=self.ledger(),
        )


def _rates(counts: Counts, at: str, seconds: int) -> Rates:
    return Rates(counts.offered[at] / (seconds or 1), counts.kept[at] / (seconds or 1))


class JobTail:
    """One job's state, at one place or at one per node; `figures` is another object once it was started over.

    Not for several threads at once: whoever shares it has a lock.
    """

    def __init__(self) -> None:
        self._start_over()

    @property
    def has_ledger(self) -> bool:
        """Whether there is a ledger to add up."""
        return bool(self._ledgers)

    def last_batches(self) -> dict[str, int]:
        """The number of the latest batch of every query on record."""
        return {query: batch for reader in self._batches.values() for query, batch in reader.last.items()}

    def advance(self, stores: Iterable[Store]) -> None:
        """Take in what was written since the last look, all of it where the ledger or the batches were replaced."""
        known = list(stores)
        # Of a store that is no longer the job's, such as that of a fragment that was moved away, nothing counts.
        gone = self._batches.keys() - {store.uri for store in known}
        if gone or not self._advance(known):
            self._start_over()
            self._advance(known)

    def _start_over(self) -> None:
        self.figures = Figures()
        self._ledgers: dict[str, LedgerTail] = {}
        self._batches: dict[str, BatchReader] = {}

    def _advance(self, stores: Sequence[Store]) -> bool:
        for store in stores:
            if store.uri not in self._ledgers:
                tail = LedgerTail(store)
                if tail.identity() is not None:
                    self._ledgers[store.uri] = tail
            batches = self._batches.setdefault(store.uri, BatchReader(store)).advance()
            if batches is None:
                return False
            for batch in batches:
                self.figures.add_batch(batch)
        same = [tail.advance(self.figures.fold) for tail in self._ledgers.values()]
        return all(same)


def read_figures(store: Store) -> tuple[Figures, dict[str, int]]:
    """All that is on record of a job, and the number of the latest batch of each of its queries: where it goes on."""
    tail = JobTail()
    tail.advance([store])
    return tail.figures, tail.last_batches()
