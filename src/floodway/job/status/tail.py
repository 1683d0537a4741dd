"""The state of a job read as it grows: its ledger and its batches, each line once, added up.

A ledger that was removed and written anew (a second run in the same folder) is another ledger, although it has the same
name: everything of the job is then read from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodway.job.ledger.ledger_tail import LedgerTail
from floodway.job.status.batches import BatchReader
from floodway.job.status.figures import Figures
from floodway.job.store.store import Store


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
