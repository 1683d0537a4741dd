"""Which timestamps belong to micro-batches that have begun: their decision must not change any more.

A query has at most one batch that is journaled and not committed: it is running, or a restart repeats it. Its timestamp
stands in the query's checkpoint, `offsets/N`. A batch takes its timestamp a moment before it is journaled, so where a
query has no such batch the last moments count as begun too.

Where a checkpoint cannot be read (Spark Connect does not tell where it is), all that is known is that a batch begun
after the last report has a timestamp after that one's: the whole span counts as begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodway.errors import FloodwayError
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json
from floodway.spark.session.stores import open_store
from floodway.spark.shed.control_table import EVER_US, Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOURNALING_US = 2_000_000
"""How long a batch may take from its timestamp to its entry in the journal."""

TICK_US = 1000
"""Spark's timestamps are whole milliseconds: one drawn now may lie before now."""

KEPT_US = 7 * 86_400_000_000
"""How long a query may have stopped: after that its last batch, should it be repeated, has the latest decision."""

OpenJournal = Callable[[str], Store | None]
"""The journal in a checkpoint; None where it cannot be read from here."""

MOST_UNREAD = 16


@dataclass(frozen=True, slots=True)
class OpenSpans:
    """Spans of timestamps: of batches that run or are about to, and of those that a restart may repeat.

    `unread` says of queries whose journal cannot be read since when a batch may have begun.
    """

    running: list[Span]
    repeated: list[Span]
    unread: dict[str, int]


@dataclass(slots=True)
class _Query:
    """`since_us` is when the last batch that was reported began."""

    journal: Store | None
    since_us: int
    running: bool = True
    last_batch: int | None = None
    journaled: JournalTimes | None = None
    """Of a query that does not run, as it ended; None if its journal cannot be read."""
    former: Span | None = None
    """Without a journal: where the timestamp of a batch to be repeated lies."""


class OpenBatches:
    """What is known of the queries that a shed is in."""

    def __init__(
        self,
        checkpoints: Mapping[str, str],
        unread: Mapping[str, int],
        now_us: int,
        open_journal: OpenJournal,
        last_batch: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """`checkpoints` and `unread` are of queries of processes before this one: none of them runs.

        `last_batch` is the last one of a query that was reported: decisions of later ones are still asked for.
        """
        self._open_journal = open_journal
        self._queries: dict[str, _Query] = {}
        for query, since_us in unread.items():
            self._queries[query] = _Query(None, now_us, running=False, former=_span(since_us, now_us))
        for query, checkpoint in checkpoints.items():
            journal = open_journal(checkpoint)
            last = last_batch(query)
            journaled = None if journal is None else read_journal(journal, last)
            if journaled is not None or query not in unread:
                self._queries[query] = _Query(journal, now_us, running=False, last_batch=last, journaled=journaled)

    def started(self, query: str, checkpoint: str | None, now_us: int) -> None:
        """A query runs."""
        known = self._queries.setdefault(query, _Query(None, now_us))
        known.running, known.since_us = True, now_us - TICK_US
        known.journal = known.journal if checkpoint is None else self._open_journal(checkpoint)

    def reported(self, query: str, batch: int, began_us: int) -> None:
        """A batch that began then is committed."""
        known = self._queries.setdefault(query, _Query(None, began_us))
        known.running, known.since_us, known.last_batch, known.former = True, began_us, batch, None

    def idle(self, query: str, now_us: int) -> None:
        """A query waits for data: all its batches are committed."""
        if known := self._queries.get(query):
            known.since_us, known.former = now_us - TICK_US, None

    def ended(self, query: str, now_us: int) -> None:
        """A query has stopped; a batch that it did not commit is repeated when it is started again."""
        if known := self._queries.get(query):
            since_us = known.since_us if known.former is None else known.former[0]
            known.running, known.former, known.journaled = False, _span(since_us, now_us), _journaled(known)

    def forget(self, query: str) -> None:
        """The shed is not in this query."""
        self._queries.pop(query, None)

    def journal(self, query: str) -> Store | None:
        """The checkpoint of a query; None where it cannot be read from here."""
        known = self._queries.get(query)
        return None if known is None else known.journal

    def journals(self) -> list[tuple[str, Store]]:
        """The checkpoints that can be read, by query."""
        return [(name, query.journal) for name, query in self._queries.items() if query.journal is not None]

    def begun(self, now_us: int, until_us: int) -> OpenSpans:
        """What batches have, or may have, that begin before `until_us`: until then the file may be the one before."""
        running: list[Span] = []
        repeated: list[Span] = []
        unread: dict[str, int] = {}
        since_us, recent_us = now_us - TICK_US, now_us - JOURNALING_US
        for name, query in self._queries.items():
            journaled = _journaled(query) if query.running else query.journaled
            # A clock that was set back says nothing of how long ago that was.
            began_us = query.since_us if query.since_us <= now_us else recent_us
            if journaled is not None:
                repeated += [(time, time + 1) for time in journaled.committed]
                (running if query.running else repeated).extend((time, time + 1) for time in journaled.begun)
                began_us = max(began_us, recent_us)
            else:
                unread[name] = began_us if query.former is None else query.former[0]
                repeated += [] if query.former is None else [query.former]
                if query.running and query.since_us > now_us:
                    running.append((query.since_us, EVER_US))  # the running batch may be from before that
            if query.running and not (journaled and journaled.begun):
                since_us = min(since_us, began_us)
        newest = sorted(unread.items(), key=lambda item: item[1])[-MOST_UNREAD:]
        lately = [span for span in repeated if span[1] > now_us - KEPT_US]
        return OpenSpans([*running, (since_us, until_us)], lately, dict(newest))


def open_checkpoint(checkpoint: str, spark: SparkSession | None = None) -> Store | None:
    """The journal of a checkpoint; None where it cannot be opened from here."""
    try:
        return open_store(checkpoint, spark)
    except FloodwayError:
        return None


@dataclass(frozen=True, slots=True)
class JournalTimes:
    """Timestamps in microseconds: of the last committed batch (a crash of the machine may lose a commit), if there is
    one, and of those after it.
    """

    committed: tuple[int, ...]
    begun: tuple[int, ...]


def read_journal(journal: Store, committed: int | None = None) -> JournalTimes | None:
    """What stands in a journal from batch `committed` on, or (None) from the last one with a commit.

    None if it cannot be read.
    """
    try:
        last = max(journaled_batches(journal, "commits"), default=-1) if committed is None else committed
        batch, times = last + 1, []
        while (time := journaled_time(journal, batch)) is not None:
            times.append(time)
            batch += 1
        before = journaled_time(journal, last)
    except (StoreError, ValueError, LookupError, TypeError):
        return None
    return JournalTimes(() if before is None else (before,), tuple(times))


def journaled_time(journal: Store, batch: int) -> int | None:
    """The timestamp of a batch in microseconds; None if it is not journaled, or no longer."""
    raw = journal.read(f"offsets/{batch}")
    return None if raw is None else int(load_json(raw.splitlines()[1])["batchTimestampMs"]) * 1000


def _journaled(query: _Query) -> JournalTimes | None:
    return None if query.journal is None else read_journal(query.journal, query.last_batch)


def _span(since_us: int, now_us: int) -> Span:
    """From then to now; with no end if the clock was set back since."""
    return since_us, now_us if since_us <= now_us else EVER_US


def journaled_batches(journal: Store, folder: str) -> list[int]:
    """The numbers of the batches in one folder of a checkpoint."""
    names = (name.rpartition("/")[2] for name in journal.names(folder))
    return [int(name) for name in names if name.isdigit()]
