"""The past of a job as points of its charts: the last minutes second by second, the whole run in a few hundred.

Rates are counts over the last `WINDOW_SECONDS` at least: the ledger gets a batch at once, so that a shorter window
would show the rhythm of the batches and not of the load. Points further apart share no tuple and leave none out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from floodway.dashboard.gauge import Gauge
from floodway.dashboard.job_sources import Reading
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.timeline import WINDOW_SECONDS, Downsampled, Timeline
from floodway.job.status.batches import Sketch

SAMPLES = 900
MOST_POINTS = 360
INSIDE = "inside"
"""Drops on arcs inside the network are of tuples that were kept at the inputs: charted apart."""


@dataclass(frozen=True, slots=True)
class PastSample:
    """The `seconds` before `time`: latency and target in seconds; tuples/s offered and kept at the inputs and dropped
    by reason, so that rate × seconds is the count of tuples; load as a share of the CPU, for participants."""

    time: float
    seconds: float = 0.0
    latency: float | None = None
    target: float | None = None
    offered: float = 0.0
    kept: float = 0.0
    dropped: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    optimum: float | None = None
    load: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the page gets it."""
        return asdict(self)


class History:
    """The latest samples, at most one a second.

    >>> history = History()
    >>> for time in (1.0, 1.4, 2.0):
    ...     history.add(PastSample(time))
    >>> [sample.time for sample in history.samples]
    [1.0, 2.0]
    """

    def __init__(self) -> None:
        self.samples: deque[PastSample] = deque(maxlen=SAMPLES)

    def add(self, *samples: PastSample) -> None:
        """Note samples, the oldest first, but none of a second that has one or of an earlier one."""
        for sample in samples:
            if not self.samples or int(sample.time) > int(self.samples[-1].time):
                self.samples.append(sample)

    @property
    def latest(self) -> PastSample | None:
        """The last one, None before the first."""
        return self.samples[-1] if self.samples else None


@dataclass(slots=True)
class _Mean:
    """A mean that others can be merged into."""

    total: float = 0.0
    count: int = 0

    def merge(self, other: _Mean) -> None:
        self.total += other.total
        self.count += other.count


class Means:
    """A figure that only the page has seen, because it is on no record that it can read: means over time."""

    def __init__(self) -> None:
        self._cells = Downsampled(_Mean)

    def note(self, second: int, value: float | None) -> None:
        """What a status said in this second."""
        if value is not None:
            self._cells.at(second).merge(_Mean(value, 1))

    def over(self, begin: int, end: int) -> float | None:
        """The mean of what was noted in [begin, end)."""
        found = _Mean()
        for cell in self._cells.between(begin, end):
            found.merge(cell)
        return found.total / found.count if found.count else None


@dataclass(slots=True)
class PageView:
    """What the page has seen of a job itself: since when, its latency and the load of a participant."""

    first: int | None = None
    last: int = 0
    latency: Means = field(default_factory=Means)
    load: Means = field(default_factory=Means)

    def note(self, second: int, *, latency: float | None, load: float | None) -> None:
        """What a status said in this second."""
        self.first, self.last = second if self.first is None else self.first, second
        self.latency.note(second, latency)
        self.load.note(second, load)


def recent(reading: Reading, gauge: Gauge | None, *, until: int, most: int = SAMPLES) -> list[PastSample]:
    """One sample a second up to second `until`, of what is on record; none while a long batch ran."""
    if reading.timeline is None or not reading.timeline.running.spans:
        return []
    running = reading.timeline.running
    first = max(running.spans[0][0], until - most)
    windows = [(second, WINDOW_SECONDS) for second in range(first + 1, until + 1)]
    found = samples_at(reading, gauge, windows, PageView())
    return [one for one in found if one.seconds or not running.covers(int(one.time) - 1)]


def whole(
    reading: Reading, gauge: Gauge | None, seen: PageView | None = None, *, most: int = MOST_POINTS
) -> list[PastSample]:
    """The whole run in about `most` samples, an empty one at both ends of each pause."""
    watched = seen or PageView()
    spans = reading.timeline.running.spans if reading.timeline else []
    if not spans and watched.first is not None:
        spans = [(watched.first, watched.last)]
    step = max(1, -(-sum(last - first + 1 for first, last in spans) // most))
    windows: list[tuple[int, int]] = []
    pauses: list[PastSample] = []
    since = 0
    for first, last in spans:
        if windows:
            pauses += [PastSample(time=since + 0.5), PastSample(time=first - 0.5)]
        ends = [*range(first + step - first % step, last + 2 - step, step), last + 1]
        for before, end in zip([since, *ends], ends, strict=False):
            windows.append((end, min(max(end - before, WINDOW_SECONDS), end - since)))
        since = last + 1
    # A window without a batch is the past downsampled so far that the stretch before says what was in it.
    found = [one for one in samples_at(reading, gauge, windows, watched) if one.seconds or one.load is not None]
    return sorted([*found, *pauses], key=lambda sample: sample.time)


def samples_at(
    reading: Reading, gauge: Gauge | None, windows: Iterable[tuple[int, int]], seen: PageView
) -> Iterator[PastSample]:
    """One sample for each (second, length): what is known of the `length` seconds before that second."""
    timeline = reading.timeline or Timeline(Counts)
    target = reading.status.latency.target if reading.status else None
    latency = None
    for second, length in windows:
        begin = second - length
        latest = _latency(reading, seen, begin, second)
        latency = latency if latest is None else latest
        counts, seconds = timeline.window(second, length)
        flow = gauge.measured(counts, seconds) if gauge and any(counts.offered.values()) else None
        score, optimum = (flow.score, flow.optimum) if flow else (None, None)
        load, rates = seen.load.over(begin, second), sample_rates(reading, counts, seconds)
        yield PastSample(
            float(second), latency=latency, target=target, score=score, optimum=optimum, load=load, **rates
        )


def _latency(reading: Reading, seen: PageView, begin: int, second: int) -> float | None:
    if reading.figures is None or not reading.figures.latencies.count:
        return seen.latency.over(begin, second)
    found: Sketch = reading.figures.latency_timeline.window(second, second - begin)[0]
    return found.mean


def sample_rates(reading: Reading, counts: Counts, seconds: float) -> dict[str, Any]:
    """Tuples/s offered and kept at the inputs, dropped by reason; drops inside the network apart.

    `seconds` is 0 where nothing was counted.
    """
    inputs, length = [at for at in counts.offered if reading.is_input(at)], seconds or 1.0
    dropped: dict[str, float] = {}
    for (at, reason), count in counts.dropped.items():
        key = reason if reading.is_input(at) else f"{reason}, {INSIDE}"
        dropped[key] = dropped.get(key, 0.0) + count / length
    offered = sum(counts.offered[at] for at in inputs) / length
    kept = sum(counts.kept[at] for at in inputs) / length
    return {"seconds": seconds, "offered": offered, "kept": kept, "dropped": dropped}
