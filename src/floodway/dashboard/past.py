"""The past of a job as samples: the last minutes second by second, and the whole run in a few hundred points.

Rates are counts over the last `WINDOW_SECONDS` at least: the ledger gets a batch at once, so that a shorter window
would show the rhythm of the batches and not of the load. Points further apart share no tuple and leave none out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from floodway.dashboard.figures import Gauge
from floodway.dashboard.history import SAMPLES, Sample
from floodway.dashboard.sources import Reading
from floodway.job.downsample import Downsampled
from floodway.job.fold import Counts
from floodway.job.latencies import Mean, mean_of
from floodway.job.timeline import Timeline
from floodway.network.model import Network

WINDOW_SECONDS = 10
MOST_POINTS = 360
INSIDE = "inside"
"""Drops on arcs inside the network are of tuples that were kept at the inputs: charted apart."""


@dataclass(slots=True)
class Means:
    """What only the page has seen, because the job writes it nowhere: means over time."""

    latency: Downsampled[Mean] = field(default_factory=lambda: Downsampled(Mean))
    load: Downsampled[Mean] = field(default_factory=lambda: Downsampled(Mean))
    first: int | None = None
    last: int = 0

    def note(self, second: int, *, latency: float | None, load: float | None) -> None:
        """What a status told in this second."""
        self.first, self.last = second if self.first is None else self.first, second
        for means, value in ((self.latency, latency), (self.load, load)):
            if value is not None:
                means.at(second).add(value)


def recent(reading: Reading, gauge: Gauge | None, *, until: int, most: int = SAMPLES) -> list[Sample]:
    """One sample a second up to second `until`, of what the job has written; none while a long batch ran."""
    if reading.timeline is None or not reading.timeline.running.spans:
        return []
    running = reading.timeline.running
    first = max(running.spans[0][0], until - most)
    windows = [(second, WINDOW_SECONDS) for second in range(first + 1, until + 1)]
    found = samples_at(reading, gauge, windows, Means())
    return [one for one in found if one.seconds or not running.covers(int(one.time) - 1)]


def whole(
    reading: Reading, gauge: Gauge | None, means: Means | None = None, *, most: int = MOST_POINTS
) -> list[Sample]:
    """The whole run in about `most` samples, an empty one at both ends of each pause."""
    seen = means or Means()
    spans = reading.timeline.running.spans if reading.timeline else []
    if not spans and seen.first is not None:
        spans = [(seen.first, seen.last)]
    step = max(1, -(-sum(last - first + 1 for first, last in spans) // most))
    windows: list[tuple[int, int]] = []
    pauses: list[Sample] = []
    since = 0
    for first, last in spans:
        if windows:
            pauses += [Sample(time=since + 0.5), Sample(time=first - 0.5)]
        ends = [*range(first + step - first % step, last + 2 - step, step), last + 1]
        for before, end in zip([since, *ends], ends, strict=False):
            windows.append((end, min(max(end - before, WINDOW_SECONDS), end - since)))
        since = last + 1
    # A window without a batch is the past thinned so far that the stretch before tells of it too.
    found = [
        sample for sample in samples_at(reading, gauge, windows, seen) if sample.seconds or sample.load is not None
    ]
    return sorted([*found, *pauses], key=lambda sample: sample.time)


def samples_at(
    reading: Reading, gauge: Gauge | None, windows: Iterable[tuple[int, int]], watched: Means
) -> Iterator[Sample]:
    """One sample for each (second, length): what is known of the `length` seconds before that second."""
    timeline = reading.timeline or Timeline(Counts)
    means = reading.latencies.means if reading.latencies.count else watched.latency
    target = reading.status.get("target_seconds")
    latency, before = None, 0
    for second, length in windows:
        begin = max(before, second - length)
        before = second
        latest = mean_of(means.between(begin, second))
        latency = latency if latest is None else latest
        load = mean_of(watched.load.between(begin, second))
        counts, seconds = timeline.window(second, length)
        rates = sample_rates(counts, seconds, reading.network)
        figures = gauge.measured(counts, seconds) if gauge and any(counts.offered.values()) else None
        score, optimum = (figures.score, figures.optimum) if figures else (None, None)
        yield Sample(float(second), latency=latency, target=target, score=score, optimum=optimum, load=load, **rates)


def sample_rates(counts: Counts, seconds: float, network: Network | None) -> dict[str, Any]:
    """Tuples/s offered and kept at the inputs, dropped by reason; drops inside the network apart.

    `seconds` is 0 where nothing was counted.
    """
    inputs, length = [at for at in counts.offered if network is None or at in network.streams], seconds or 1.0
    dropped: dict[str, float] = {}
    for (at, reason), count in counts.dropped.items():
        key = reason if network is None or at in network.streams else f"{reason}, {INSIDE}"
        dropped[key] = dropped.get(key, 0.0) + count / length
    offered = sum(counts.offered[at] for at in inputs) / length
    kept = sum(counts.kept[at] for at in inputs) / length
    return {"seconds": seconds, "offered": offered, "kept": kept, "dropped": dropped}
