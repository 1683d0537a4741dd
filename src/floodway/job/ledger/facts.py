"""What made each tuple of a batch stay or go, kept for as long as somebody may want the dropped ones back.

A drop is a pure function of journaled facts: which positions of the source the batch read, and which decision it found.
So nothing of a dropped tuple has to be copied: read the positions again, apply the decision again, take the others.

    STATE/facts/…      one JSON line per batch that dropped something, an append-only log (`line_log.py`)

A position is that of Kafka: topic, partition, offset. `ranges` leave their end out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from floodway.job.decision import Mode
from floodway.job.store.line_log import open_log
from floodway.job.store.store import Store

FACTS = "facts"
KEPT_SEGMENTS = 256


@dataclass(frozen=True, slots=True)
class Range:
    """Positions of one partition that a batch read, the last one left out."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """One batch: what it read, the decision it found, and what came of it.

    `ranges` is empty where the source has no positions that can be read again; `why` then says so. With a `threshold`
    tuples of a higher utility were kept, and `tie_ppm` of those that equal it; else `keep_ppm` of all. `epochs` holds
    (start_us, pass_ppm, emit_ppm) of Window Drop. What was before `stale_before_us` was skipped in any case. With
    `others_ppm` tuples were kept by their key: `quotas` has (hash of the key, ppm), and all others had `others_ppm`.
    What was before the positions in `skip` (by topic and partition) was skipped too.
    """

    query: str
    batch: int
    time_us: int
    mode: Mode
    offered: int
    kept: int
    keep_ppm: int
    salt: int
    threshold: float | None = None
    tie_ppm: int = 1_000_000
    epochs: tuple[tuple[int, int, int], ...] = ()
    stale_before_us: int | None = None
    quotas: tuple[tuple[int, int], ...] = ()
    others_ppm: int | None = None
    skip: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()
    why: str = ""
    version: Literal[1] = 1

    @property
    def dropped(self) -> int:
        """Tuples that can be made good."""
        return self.offered - self.kept


_FACTS = TypeAdapter(BatchFacts)


class FactsLog:
    """The facts of a job's batches on its store; written by the job alone.

    >>> import tempfile
    >>> from floodway.job.store.store import LocalStore
    >>> log = FactsLog(LocalStore(tempfile.mkdtemp()))
    >>> log.add(BatchFacts("q", 3, 5_000_000, "enforce", 10, 4, 400_000, 7, ranges=(Range("clicks", 0, 20, 30),)))
    >>> [facts.dropped for facts in log.read()]
    [6]
    """

    def __init__(self, store: Store) -> None:
        self._log = open_log(store, FACTS)
        self._end = 0

    def add(self, facts: BatchFacts) -> None:
        """Keep the facts of one batch, durably."""
        line = (json.dumps(asdict(facts), separators=(",", ":"), allow_nan=False) + "\n").encode()
        while (end := self._log.append(line, self._end)) is None:
            self._end = max((position for position, _ in self._log.read(self._end)), default=self._end)
        self._end = end
        begins = self._log.segments()
        if len(begins) > KEPT_SEGMENTS:
            self._log.remove_before(begins[-KEPT_SEGMENTS])

    def read(self) -> Iterator[BatchFacts]:
        """All facts, oldest first; a batch that was reported twice comes once, as it was first."""
        seen: set[tuple[str, int]] = set()
        for _, part in self._log.read(next(iter(self._log.segments()), 0)):
            for raw in part.splitlines():
                try:
                    facts = _FACTS.validate_json(raw)
                except ValidationError:
                    continue  # of another version, or torn: the ledger still counts what was dropped
                if (facts.query, facts.batch) not in seen:
                    seen.add((facts.query, facts.batch))
                    yield facts


def between(facts: Iterable[BatchFacts], since_us: int | None, until_us: int | None) -> list[BatchFacts]:
    """Those that dropped something and were reported in [since, until)."""
    return [
        one
        for one in facts
        if one.dropped > 0
        and (since_us is None or one.time_us >= since_us)
        and (until_us is None or one.time_us < until_us)
    ]
