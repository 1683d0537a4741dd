"""What made each tuple of a batch stay or go, kept for as long as somebody may want the dropped ones back.

A drop is a pure function of journaled facts: which positions of the source the batch read, and which decision it found.
So nothing of a dropped tuple has to be copied: read the positions again, apply the decision again, take the others.

    STATE/facts/…      one JSON line per batch of which something may be missing (`job/store/line_log.py`)

A position is that of Kafka or of an embedded log: topic or stream, partition, offset. `ranges` leave their end out.

    STATE/rule.json    what a user of a shed chose once that decides over tuples (identity, key, utility, windows)

The expression by which dropped tuples are found (`spark/shed/recovery/fate.py`) must be the same whenever they are read
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from floodway.errors import InputError
from floodway.job.decision import Mode
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import Store
from floodway.planning.windows.window_drop import WindowShape
from floodway.units import PPM

FACTS = "facts"
KEPT_SEGMENTS = 256
"""A gibibyte: a month of batches, one a second."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Positions of one partition that a batch read, the last one left out.

    `topic` is Kafka's; or, where `floodway` says so, the stream that a Floodway source read from its log or topic.
    """

    topic: str
    partition: int
    start: int
    end: int
    floodway: bool = False


Epoch = tuple[int, int, int]
"""`start_us`, `pass_ppm` and `emit_ppm` of Window Drop."""


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """One batch: what it read, the decision it found, and what came of it.

    `ranges` is empty where the source has no positions that can be read again; `why` then says so. With a `threshold`
    tuples of a higher utility were kept, and `tie_ppm` of those that equal it; else `keep_ppm` of all. What was before
    `stale_before_us` was skipped in any case, and so was what was before the positions in `skip` (by topic and
    partition). With `others_ppm` tuples were kept by their key: `quotas` has (hash of the key, ppm), and all others had
    `others_ppm`. Of a stream of a network `offset`, as Spark journaled it, says all of this.

    With Window Drop tuples passed by `epochs`; `later_epochs` came while the batch ran, and windows are emitted by
    both. `in_gaps` are tuples of windows that are not emitted.

    A batch that nobody reported, because the driver died, is not `counted`: what it was offered and what it kept is
    found when it is read again.
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
    epochs: tuple[Epoch, ...] = ()
    later_epochs: tuple[Epoch, ...] = ()
    in_gaps: int = 0
    counted: bool = True
    stale_before_us: int | None = None
    quotas: tuple[tuple[int, int], ...] = ()
    others_ppm: int | None = None
    skip: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    offset: str = ""
    why: str = ""
    version: Literal[1] = 1

    @property
    def dropped(self) -> int:
        """Tuples that can be made good; 0 if they were not counted."""
        return self.offered - self.kept

    @property
    def readable(self) -> bool:
        """Whether its tuples can be read again, as long as the source keeps them."""
        return bool(self.ranges or self.offset)

    @property
    def recoverable(self) -> bool:
        """Whether something of the batch may be missing from the results."""
        lowered = any(emit_ppm < PPM for _, _, emit_ppm in self.later_epochs)
        return self.dropped > 0 or self.in_gaps > 0 or lowered or not self.counted

    @property
    def size(self) -> int:
        """Tuples to be processed, at most those that were read."""
        read = sum(one.end - one.start for one in self.ranges)
        return max(self.dropped, self.in_gaps) if self.counted else read


_FACTS = TypeAdapter(BatchFacts)


class FactsLog:
    """The facts of a job's batches on its store; written by the job alone.

    >>> import tempfile
    >>> from floodway.job.store.store import LocalStore
    >>> log = FactsLog(LocalStore(tempfile.mkdtemp()))
    >>> log.add(BatchFacts("q", 3, 5_000_000, "enforce", 10, 4, 400_000, 7, ranges=(OffsetRange("clicks", 0, 20, 30),)))
    >>> [facts.dropped for facts in log.read()]
    [6]
    """

    def __init__(self, store: Store, stream: str = "") -> None:
        """Of a shed, or of one stream of a network."""
        self._lines = KeptLines(store, f"{FACTS}/{stream}" if stream else FACTS, kept_segments=KEPT_SEGMENTS)

    def add(self, *facts: BatchFacts) -> None:
        """Keep the facts of batches of which something may be missing, durably."""
        if kept := [asdict(one) for one in facts if one.recoverable]:
            self._lines.append(kept)

    def read(self) -> Iterator[BatchFacts]:
        """All facts, oldest first; a batch that was reported twice comes once, as it was first."""
        seen: set[tuple[str, int]] = set()
        for line in self._lines.read():
            try:
                facts = _FACTS.validate_python(line)
            except ValidationError:
                continue  # of another version: the ledger still counts what was dropped
            if (facts.query, facts.batch) not in seen:
                seen.add((facts.query, facts.batch))
                yield facts


def between(facts: Iterable[BatchFacts], since_us: int | None, until_us: int | None) -> list[BatchFacts]:
    """Those of which something may be missing and that were reported in [since, until)."""
    return [
        one
        for one in facts
        if one.recoverable
        and (since_us is None or one.time_us >= since_us)
        and (until_us is None or one.time_us < until_us)
    ]


RULE = "rule.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides beside the decision: the columns hashed, the utility as an SQL expression, the windows.

    `timestamp` is the column by which tuples are stale, `share_by` the expression whose values have quotas,
    `accuracy_by` that whose values have keeps for an accuracy. `utility`
    None with `by_utility` says that the utility was a Column of the program, which cannot be kept.
    """

    hashed: tuple[str, ...]
    by_utility: bool = False
    utility: str | None = None
    floor_ppm: int = 0
    window: WindowShape | None = None
    time_column: str | None = None
    salt: int = 0
    timestamp: str | None = None
    share_by: str | None = None
    keep_rare: int = 0
    rare_by: str | None = None
    accuracy_by: str | None = None
    version: Literal[1] = 1


_RULE = TypeAdapter(Rule)


def write_rule(store: Store, rule: Rule) -> None:
    """Keep the rule, if it is another one than is there."""
    data = json.dumps(asdict(rule)).encode()
    if store.read(RULE) != data:
        store.write(RULE, data)


def read_rule(store: Store) -> Rule:
    """The rule of a shed; InputError if it never ran."""
    raw = store.read(RULE)
    try:
        if raw is not None:
            return _RULE.validate_json(raw)
    except ValidationError:
        pass
    raise InputError(
        f"{store.uri} holds no shed that has run with this version",
        hint="Check the name and the state folder; `floodway top NAME` shows what is there",
    )
