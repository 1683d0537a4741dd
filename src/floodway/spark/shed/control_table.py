"""The control table: which decision a micro-batch finds, as a function of the batch's journaled timestamp.

Spark journals a timestamp before a batch runs and gives it back on replay. The table says which entry is in force for
it: the latest one, whatever the timestamp, except for those timestamps that a batch which has already begun may have.

    {"version": 2, "latest": ENTRY, "others": [{"begin_us": …, "end_us": …, "entry": ENTRY}, …], "epochs": [EPOCH, …],
     "lookup": LOOKUP}

    ENTRY  seq (counts up), valid_from_us, keep_ppm, salt, mode, threshold (null: none), tie_ppm,
           budget (null: none), rate, surge (null: 1), base_us, until_us (null: for ever),
           quotas (of keys: `keys/quotas.py`; or null),
           rare_ppm (the share of the tuples that are kept as the first of their keys, `keys/rare.py`),
           skip (positions of Kafka by topic and partition before which tuples are skipped; null: none)
    EPOCH  seq (of the first entry that knows it), start_us, pass_ppm, emit_ppm       (Window Drop only)
    LOOKUP the same entries as a micro-batch looks them up (`Table.lookup`): all that can be computed beforehand is, as
           whatever a plan computes is planned anew for every batch. `breaks` are timestamps, in order; `which` has the
           number of the entry in force before the first of them, from each of them on, and so to the last

`changed` puts a new entry in force for every timestamp but the *begun* ones (`open_batches.py`), which keep what they
had. So a batch finds the same entry in its first run and in every replay. And a clock that is set back or forward makes
no difference: the next batch finds the latest entry. The file holds that one and one for each batch that runs or waits
for its replay, however long the job runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from floodway.job.decision import Mode
from floodway.planning.lag import Positions
from floodway.planning.windows.window_drop import ALWAYS, Epoch
from floodway.spark.shed.keys.quotas import QUOTAS_SCHEMA, Quotas
from floodway.units import PPM

MOST_OTHERS = 64
"""Entries beside the latest one; of more the oldest are dropped, and their batches find the latest."""

KeepPpm = Annotated[int, Field(ge=0, le=PPM)]
Seq = Annotated[int, Field(ge=0, lt=1 << 30)]
"""With a mode it is within Spark's int; a decision a second would take thirty years to it."""
Bigint = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
TimeUs = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Span = tuple[int, int]
"""Timestamps in microseconds from the first on, the second left out."""

LOWEST, HIGHEST = 0.25, 1.25
"""How far a batch may move its keep from the forecast. Down by much, because a batch may run long by much;
up by little, because a query that waited is offered more than the time since the last batch says.
"""

MODES: tuple[Mode, ...] = ("off", "observe", "enforce")
EVER_US = 1 << 62

_FIELDS = {
    "code": "bigint",
    "low": "double",
    "high": "double",
    "scaled": "double",
    "base_us": "bigint",
    "enforced_until_us": "bigint",
    "salt": "bigint",
    "seq": "int",
    "keep_ppm": "int",
}
_FIELDS_OF_OPTIONS = {
    "epochs": "int",
    "threshold": "double",
    "tie_ppm": "int",
    "quotas": f"struct<{QUOTAS_SCHEMA}>",
    "rare_ppm": "int",
    "skip": "map<string,array<bigint>>",
}
_EPOCHS = "epochs array<struct<seq:int,start_us:bigint,pass_ppm:int,emit_ppm:int>>"


def table_schema(options: Collection[str]) -> str:
    """What Spark reads of the file: the fields of every decision, and those of these options (`epochs` for windows)."""
    kinds = _FIELDS | {name: kind for name, kind in _FIELDS_OF_OPTIONS.items() if name in options}
    entry = ",".join(f"{name}:{kind}" for name, kind in kinds.items())
    found = f"breaks:array<bigint>,which:array<int>,entries:array<struct<{entry}>>"
    return ", ".join((f"lookup struct<{found}>", *([_EPOCHS] if "epochs" in options else [])))


class EntryBudget(NamedTuple):
    """What a keep follows the length of its batch by: see `Entry`."""

    budget: float
    rate: float
    base_us: int
    surge: float = 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision. `valid_from_us` is when it came into force: batches begun before that by the clock have another one.

    With a `threshold`, tuples of a utility above it are kept, and `tie_ppm` of those that equal it; without one,
    `keep_ppm` of all by hash; with `quotas`, that of each key. `keep_ppm` is the keep aimed at in all cases.

    With a `budget` (tuples), the keep follows the batch: tuples arrive at `rate` a second since `base_us`, the end of
    the batch before, so one that begins at t is offered rate (t - base) and keeps the budget of it. If the load may be
    rising, they arrive at `surge` times the rate, from a later `base_us` on:

        keep = budget / (surge rate (t - base)),  within [0.25, 1.25] of keep_ppm

    A batch that ran long is so followed by a lower keep, before anything of it was reported. With a threshold the share
    of the ties moves as the keep does; what is above the threshold is kept all the same.

    A batch that begins at `until_us` or later keeps everything: whoever decides has not been heard of since.

    >>> entry = Entry(1, 0, keep_ppm=500_000, budget=300.0, rate=1000.0, base_us=0)
    >>> [entry.keep_at(t) for t in (200_000, 1_000_000, 60_000_000)]
    [625000, 300000, 125000]
    """

    seq: Seq
    valid_from_us: TimeUs
    keep_ppm: KeepPpm = PPM
    salt: Bigint = 0
    mode: Mode = "observe"
    threshold: FiniteFloat | None = None
    tie_ppm: KeepPpm = PPM
    budget: FiniteFloat | None = None
    rate: FiniteFloat | None = None
    base_us: TimeUs | None = None
    until_us: TimeUs | None = None
    quotas: Quotas | None = None
    rare_ppm: KeepPpm = 0
    skip: Positions | None = None
    surge: FiniteFloat | None = None

    def following(self, follow: EntryBudget | None) -> Entry:
        """The entry with a keep that follows the length of the batch, or (None) does not."""
        return replace(self, **dict.fromkeys(EntryBudget._fields) if follow is None else follow._asdict())

    def expired(self, batch_time_us: int) -> bool:
        """Whether a batch with this timestamp keeps everything, because nobody has renewed the decision."""
        return self.until_us is not None and batch_time_us >= self.until_us

    def keep_at(self, batch_time_us: int) -> int:
        """The keep in ppm for a batch with this timestamp; the same as `control_columns` computes from `lookup`."""
        if self.expired(batch_time_us):
            return PPM
        low, high, scaled = self._following
        return math.floor(max(low, min(high, scaled / max(batch_time_us - (self.base_us or 0), 1))))

    @property
    def _following(self) -> tuple[float, float, float]:
        """The least and the greatest keep in ppm, and the keep times the microseconds since `base_us`."""
        keep = float(self.keep_ppm)
        if self.budget is None or self.rate is None or self.base_us is None:
            return keep, keep, 0.0
        rate = self.rate * (1.0 if self.surge is None else self.surge)
        scaled = PPM * self.budget * 1e6 / rate if rate > 0.0 else math.inf
        return keep * LOWEST, min(keep * HIGHEST, float(PPM)), min(scaled, 1e30)

    def lookup(self) -> dict[str, object]:
        """The entry as a batch looks it up: `code` is what the batch reports it by (`control_columns.decided`)."""
        low, high, scaled = self._following
        until_us = EVER_US if self.until_us is None else self.until_us
        found = {
            "code": self.seq * len(MODES) + MODES.index(self.mode),
            "low": low,
            "high": high,
            "scaled": scaled,
            "base_us": self.base_us or 0,
            "enforced_until_us": until_us if self.mode == "enforce" else 0,
            "salt": self.salt,
            "seq": self.seq,
            "keep_ppm": self.keep_ppm,
            "threshold": self.threshold,
            "tie_ppm": self.tie_ppm,
            "quotas": self.quotas,
            "rare_ppm": self.rare_ppm,
            "skip": self.skip,
        }
        return {name: value for name, value in found.items() if value is not None}

    def tie_at(self, batch_time_us: int) -> int:
        """The share in ppm of the ties for a batch with this timestamp: with the keep, which ties alone can follow."""
        return math.floor(min(PPM, self.tie_ppm * self.keep_at(batch_time_us) / max(self.keep_ppm, 1)))

    def says(self, other: Entry) -> bool:
        """Whether both decide the same, whenever they were written and however long they hold."""
        return replace(self, seq=0, valid_from_us=0, until_us=None) == replace(
            other, seq=0, valid_from_us=0, until_us=None
        )


@dataclass(frozen=True, slots=True)
class Other:
    """What is in force in place of the latest entry for timestamps from `begin_us` on and before `end_us`."""

    begin_us: TimeUs
    end_us: TimeUs
    entry: Entry

    def is_within(self, entry: Entry) -> bool:
        """Whether another entry, put in place of this one, would make no difference: one that was renewed, say."""
        if self.entry == entry:
            return True
        last_us = self.end_us - 1
        renewed = replace(self.entry, until_us=entry.until_us) == entry
        return renewed and not self.entry.expired(last_us) and not entry.expired(last_us)


@dataclass(frozen=True, slots=True)
class Table:
    """The content of the file; `others` are in order and do not overlap.

    `unread` holds, of queries whose journal cannot be read, from when on a batch of theirs may have begun.

    >>> table = Table(Entry(0, 0)).changed(Entry(1, 120), begun=[(70, 71), (100, 120)])
    >>> [table.at(time).seq for time in (50, 70, 71, 100, 119, 120)]
    [1, 0, 1, 0, 0, 1]
    """

    latest: Entry
    others: tuple[Other, ...] = ()
    epochs: tuple[Epoch, ...] = (ALWAYS,)
    unread: Mapping[str, int] = field(default_factory=dict)
    version: Literal[2] = 2

    def at(self, batch_time_us: int) -> Entry:
        """The entry in force for a micro-batch with this timestamp."""
        for other in self.others:
            if other.begin_us <= batch_time_us < other.end_us:
                return other.entry
        return self.latest

    def knows(self, batch_time_us: int) -> bool:
        """Whether a micro-batch that has ended found what `at` says: of others the table has forgotten the entry."""
        kept = any(other.begin_us <= batch_time_us < other.end_us for other in self.others)
        return kept or batch_time_us >= self.latest.valid_from_us

    def is_after(self, other: Table) -> bool:
        """Whether this is a later state of the same table: a later decision, or the same one renewed."""
        mine, its = ((one.latest.seq, one.latest.until_us or 0) for one in (self, other))
        return mine > its

    @property
    def oldest_seq(self) -> int:
        """No batch that runs, is repeated or is still to begin finds an entry before this one."""
        return min((other.entry.seq for other in self.others), default=self.latest.seq)

    def oldest_within(self, spans: Iterable[Span]) -> int:
        """No batch with such a timestamp finds an entry before this one."""
        found = (other.entry.seq for span in spans for other in self._within(span))
        return min(found, default=self.latest.seq)

    def changed(self, entry: Entry, begun: Iterable[Span]) -> Table:
        """The table with another latest entry; timestamps in `begun` keep what they have."""
        kept = [other for span in _joined(begun) for other in self._within(span) if not other.is_within(entry)]
        return replace(self, latest=entry, others=tuple(kept[-MOST_OTHERS:]))

    def _within(self, span: Span) -> Iterator[Other]:
        """The table restricted to some timestamps."""
        begin, end = span
        for other in self.others:
            if other.end_us > begin and other.begin_us < end:
                if begin < other.begin_us:
                    yield Other(begin, other.begin_us, self.latest)
                yield Other(max(begin, other.begin_us), min(end, other.end_us), other.entry)
                begin = min(end, other.end_us)
        if begin < end:
            yield Other(begin, end, self.latest)

    def lookup(self) -> dict[str, object]:
        """The table with its entries as a batch looks them up."""
        found = [self.latest, *(other.entry for other in self.others)]
        return {
            "breaks": [at for other in self.others for at in (other.begin_us, other.end_us)],
            "which": [0, *(number for other in range(len(self.others)) for number in (other + 1, 0))],
            "entries": [entry.lookup() | {"epochs": self._known(entry)} for entry in found],
        }

    def _known(self, entry: Entry) -> int:
        """How many of the epochs, which are in the order of their numbers, the entry knows."""
        return sum(epoch.seq <= entry.seq for epoch in self.epochs)

    def encode(self) -> bytes:
        """One line."""
        body = {name: getattr(self, name) for name in self.__slots__} | {"lookup": self.lookup()}
        return (json.dumps(body, separators=(",", ":"), allow_nan=False, default=_fields) + "\n").encode()

    @classmethod
    def decode(cls, raw: bytes) -> Table | None:
        """The table in a file; None if this is none of this version."""
        try:
            return _TABLE.validate_json(raw)
        except (ValidationError, UnicodeDecodeError):
            return None


_TABLE = TypeAdapter(Table)


def _fields(part: object) -> dict[str, object]:
    """The fields of a part of the table that have a value; `asdict` would copy all that is in them."""
    pairs = ((field.name, getattr(part, field.name)) for field in fields(cast(Any, part)))
    return {name: value for name, value in pairs if value is not None}


def _joined(spans: Iterable[Span]) -> Sequence[Span]:
    """In order, without overlap."""
    joined: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined
