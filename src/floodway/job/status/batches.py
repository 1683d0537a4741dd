"""Every batch of a job on record: latencies, rates, keep and reason, for reports and pages, whatever the kind of job.

    batches/00000012.jsonl   a segment: one batch per line, up to `SEGMENT_BATCHES`; the last segment is written anew
                             with every batch, the others do not change
    batches/history.jsonl    older batches, downsampled by age (`ledger/timeline.py`): one line per query and stretch
                             of time; its first line says up to which segment it goes

These are measurements, not accounts: a batch lost in a crash of the machine costs a point in a figure. The accounts are
in the ledger. A batch that is repeated after a crash counts once.

The latencies of a batch are a sketch: exact mean, quantiles within 1%, small enough to write with every batch.

    bucket i holds latencies in (g^(i-1), g^i] milliseconds, g = 1.02        its value: 2 g^i / (1 + g) milliseconds

Sketches are merged by adding their counts, so a minute, a day or several nodes have quantiles as exact as one batch's
(Masson et al., DDSketch, VLDB 2019).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from floodway.job.ledger.timeline import Downsampled
from floodway.job.store.store import Store
from floodway.json_text import load_json

GROWTH = 1.02
MOST_BUCKET = 3000
"""Of a latency longer than the universe is old."""
BUCKETS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0)
"""Bounds of the exported histogram in seconds: targets of micro-batch engines lie between half a second and ten."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
"""What a file may hold: no NaN, and no number whose sums or powers are none."""

FOLDER = "batches"
HISTORY = f"{FOLDER}/history.jsonl"
SEGMENT_BATCHES = 128
MOST_SEGMENTS = 64
"""When there are more than this, the older half becomes history."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a tuple's arrival to its result being visible; None where nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    target: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """As in the `--json` output."""
        return asdict(self)


@dataclass(slots=True)
class Sketch:
    """Counts of tuples by the bucket of their latency, and the sum of the latencies in seconds.

    >>> sketch = Sketch()
    >>> sketch.add(0.4, 3)
    >>> sketch.add(2.5, 1)
    >>> sketch.count, sketch.mean, round(sketch.quantile(0.5), 2), round(sketch.quantile(0.95), 2)
    (4, 0.925, 0.4, 2.52)
    >>> sketch.cumulative()[1], sketch.cumulative()[-1]
    (3, 4)
    """

    counts: Counter[Annotated[int, Field(ge=0, le=MOST_BUCKET)]] = field(default_factory=Counter)
    total_seconds: Number = 0.0

    @classmethod
    def of(cls, latencies: Iterable[tuple[float, int]]) -> Sketch:
        """From pairs of seconds and tuples."""
        found = cls()
        for seconds, tuples in latencies:
            found.add(seconds, tuples)
        return found

    def add(self, seconds: float, tuples: int = 1) -> None:
        """Count tuples of one latency; what a clock that was set back makes negative counts as 0."""
        if tuples > 0:
            late = max(0.0, seconds)
            self.counts[max(0, math.ceil(math.log(late * 1e3, GROWTH) - 1e-9)) if late > 1e-3 else 0] += tuples
            self.total_seconds += late * tuples

    def merge(self, other: Sketch) -> None:
        """Add another's."""
        self.counts.update(other.counts)
        self.total_seconds += other.total_seconds

    def copy(self) -> Sketch:
        """As it is now."""
        return Sketch(self.counts.copy(), self.total_seconds)

    @property
    def count(self) -> int:
        """Tuples measured."""
        return self.counts.total()

    @property
    def mean(self) -> float | None:
        """None before the first."""
        return self.total_seconds / self.count if self.count else None

    @property
    def width(self) -> float | None:
        """Over how many seconds the latencies are spread: if evenly over W, they deviate by W / √12 from their mean."""
        mean, count = self.mean, self.count
        if mean is None:
            return None
        squares = sum(tuples * (_seconds(bucket) - mean) ** 2 for bucket, tuples in self.counts.items())
        return math.sqrt(12.0 * squares / count)

    def quantile(self, share: float) -> float | None:
        """The latency in seconds that this share of the tuples does not exceed."""
        most, running = share * self.count, 0
        for bucket, tuples in sorted(self.counts.items()):
            running += tuples
            if running >= most:
                return _seconds(bucket)
        return None

    def latency(self, target: float | None) -> Latency:
        """Mean and quantiles."""
        return Latency(self.mean, self.quantile(0.5), self.quantile(0.95), self.quantile(0.99), target)

    def cumulative(self) -> list[int]:
        """Tuples at or below each bound of `BUCKETS`, and all of them."""
        found = [0] * (len(BUCKETS) + 1)
        for bucket, tuples in self.counts.items():
            found[bisect_left(BUCKETS, _seconds(bucket))] += tuples
        return [sum(found[: index + 1]) for index in range(len(found))]


def _seconds(bucket: int) -> float:
    return 2.0 * GROWTH**bucket / (1.0 + GROWTH) / 1e3


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch, or several of one query as one. Times are seconds of the epoch.

    `offered` and `kept` are tuples at the inputs of the job, `keep` the share that the decision in force kept of them,
    `work_seconds` seconds of the nodes' nominal CPU that the kept tuples ask for, `scale` the share of the nominal
    capacity planned for, `delivered` tuples by sink. `latencies` are those of the results.
    """

    query: str
    batch: Count
    cut_seconds: Number
    ended_seconds: Number
    offered: Count = 0
    kept: Count = 0
    keep: Number = 1.0
    mode: str = "enforce"
    reason: str = ""
    latencies: Sketch = field(default_factory=Sketch)
    delivered: Mapping[str, Count] = field(default_factory=dict)
    work_seconds: Number = 0.0
    busy_seconds: Number = 0.0
    scale: Number = 1.0
    batches: Count = 1

    def encode(self) -> bytes:
        """One line, newline included."""
        body = {name: getattr(self, name) for name in self.__slots__}
        body["latencies"] = [self.latencies.total_seconds, sorted(self.latencies.counts.items())]
        return json.dumps(body, separators=(",", ":")).encode() + b"\n"

    def to_dict(self) -> dict[str, Any]:
        """As in the `--json` output of a report: mean and quantiles for the sketch."""
        body = {name: getattr(self, name) for name in self.__slots__ if name != "latencies"}
        return {**body, "delivered": dict(self.delivered), "latency": self.latencies.latency(None).to_dict()}

    @classmethod
    def decode(cls, raw: bytes) -> Batch:
        """Read one line; ValueError, KeyError or TypeError if it is none."""
        body = load_json(raw)
        total_seconds, counts = body["latencies"]
        return _FORM.validate_python({**body, "latencies": {"counts": dict(counts), "total_seconds": total_seconds}})

    def joined(self, later: Batch) -> Batch:
        """This one and a later one of the same query as one."""
        latencies, offered = self.latencies.copy(), self.offered + later.offered
        latencies.merge(later.latencies)
        share = later.offered / offered if offered else 1.0
        return replace(
            later,
            batch=max(self.batch, later.batch),
            cut_seconds=min(self.cut_seconds, later.cut_seconds),
            ended_seconds=max(self.ended_seconds, later.ended_seconds),
            offered=offered,
            kept=self.kept + later.kept,
            keep=self.keep + (later.keep - self.keep) * share,
            latencies=latencies,
            delivered=dict(Counter(self.delivered) + Counter(later.delivered)),
            work_seconds=self.work_seconds + later.work_seconds,
            busy_seconds=self.busy_seconds + later.busy_seconds,
            batches=self.batches + later.batches,
        )


_FORM = TypeAdapter(Batch)


@dataclass(slots=True)
class _Stretch:
    """The batches of a stretch of time, by query."""

    queries: dict[str, Batch] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        known = self.queries.get(batch.query)
        self.queries[batch.query] = batch if known is None else known.joined(batch)

    def merge(self, other: _Stretch) -> None:
        for batch in other.queries.values():
            self.add(batch)


class BatchLog:
    """The writer, one per job; `last` has the number of the latest batch of every query, from the reader at the start.

    >>> import tempfile
    >>> from floodway.job.store.store import LocalStore
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> log = BatchLog(store)
    >>> log.append(Batch("q", 0, 1.0, 2.0)), log.append(Batch("q", 0, 1.0, 9.0))
    (True, False)
    >>> [batch.ended_seconds for batch in BatchReader(store).advance() or ()]
    [2.0]
    """

    def __init__(self, store: Store, last: Mapping[str, int] | None = None) -> None:
        self._store = store
        self._last = dict(last or {})
        numbers = segments(store)
        self._number = numbers[-1] if numbers else _through(store.read(HISTORY)) + 1
        self._lines = (store.read(_name(self._number)) or b"").splitlines(keepends=True)

    def append(self, batch: Batch) -> bool:
        """Write a batch; False if it is on record already."""
        if batch.batch <= self._last.get(batch.query, -1):
            return False
        self._last[batch.query] = batch.batch
        if len(self._lines) >= SEGMENT_BATCHES:
            self._number, self._lines = self._number + 1, []
            self._shorten()
        self._lines.append(batch.encode())
        self._store.write(_name(self._number), b"".join(self._lines), durable=False)
        return True

    def _shorten(self) -> None:
        """Make history of the older half of the segments, once there are too many."""
        sealed = [number for number in segments(self._store) if number < self._number]
        if len(sealed) <= MOST_SEGMENTS:
            return
        raw = self._store.read(HISTORY)
        old = [number for number in sealed[: len(sealed) // 2] if number > _through(raw)]
        stretches = Downsampled(_Stretch)
        known = [*_history(raw), *(batch for number in old for batch in decoded(self._store.read(_name(number))))]
        for batch in sorted(known, key=lambda one: one.ended_seconds):
            stretches.at(int(batch.ended_seconds)).add(batch)
        head = json.dumps({"version": VERSION, "through": sealed[len(sealed) // 2 - 1]}).encode() + b"\n"
        lines = [batch.encode() for stretch in stretches.cells() for batch in stretch.queries.values()]
        # The history first: a crash in between leaves segments that it already has, and that readers pass over.
        self._store.write(HISTORY, head + b"".join(lines))
        for number in sealed[: len(sealed) // 2]:
            self._store.remove(_name(number))


class BatchReader:
    """Reads a log of batches as it grows; `last` has the number of the latest batch of every query."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = -1
        self._read = b""
        self.last: dict[str, int] = {}

    def advance(self) -> list[Batch] | None:
        """The batches that are new since the last call; None if what was read before is not there any more."""
        numbers = segments(self._store)
        if self._number >= 0 and self._number not in numbers:
            return [] if not numbers and self._store.read(HISTORY) is None else None
        found: list[Batch] = []
        if self._number < 0:
            raw = self._store.read(HISTORY)
            for batch in _history(raw):  # by their times, which need not go with their numbers: all of them are fresh
                self.last[batch.query] = max(batch.batch, self.last.get(batch.query, -1))
                found.append(batch)
            self._number = _through(raw)
        for number in [one for one in numbers if one >= self._number]:
            raw = self._store.read(_name(number)) or b""
            if number == self._number and not raw.startswith(self._read):
                return None
            fresh = raw[len(self._read) :] if number == self._number else raw
            found += self._fresh(decoded(fresh))
            self._number, self._read = number, raw
        return found

    def _fresh(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if batch.batch > self.last.get(batch.query, -1):
                self.last[batch.query] = batch.batch
                yield batch


def segments(store: Store) -> list[int]:
    """The numbers of all segments, the oldest first."""
    stems = [name.removeprefix(f"{FOLDER}/").removesuffix(".jsonl") for name in store.names(FOLDER)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def decoded(raw: bytes | None) -> Iterator[Batch]:
    """The batches in a segment; a line that is none is passed over."""
    for line in (raw or b"").splitlines():
        try:
            yield Batch.decode(line)
        except (ValueError, KeyError, TypeError):
            continue


def _history(raw: bytes | None) -> Iterator[Batch]:
    return decoded((raw or b"").partition(b"\n")[2])


def _through(raw: bytes | None) -> int:
    """The last segment that the history has; -1 for none."""
    try:
        return int(load_json((raw or b"").partition(b"\n")[0])["through"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return -1


def _name(number: int) -> str:
    return f"{FOLDER}/{number:08d}.jsonl"
