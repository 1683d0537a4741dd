"""What a run remembers for its report: batches, latencies, and how much had arrived when.

Batches are added up as they end: after a month a run holds what it held after an hour. Of single batches the latest
`MOST_POINTS` stay, for plots; all of them are in the run's `batches.jsonl`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.agent.loop.report import Point
from floodway.agent.loop.steering import Steered
from floodway.job.fold import Counts
from floodway.network.model import Network
from floodway.spark.query.fragment_query import BatchReport

MOST_POINTS = 20_000
_RECENT = 20


@dataclass
class _Sums:
    """Batches that ended in the measured part, added up: tuples at places and outputs, latencies by milliseconds."""

    ended_seconds: float | None = None
    counts: Counts = field(default_factory=Counts)
    delivered: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)

    def add(self, report: BatchReport) -> None:
        self.ended_seconds = report.ended_seconds
        self.counts.merge(Counts.of(report.lines))
        for name, written in report.delivered.items():
            self.delivered[name] += written.rows

    def time(self, seconds: NDArray[np.float64], tuples: NDArray[np.int64]) -> None:
        """Arrival times are whole milliseconds, so nothing is lost by counting in these."""
        for step, count in zip(np.round(seconds * 1e3).astype(np.int64), tuples, strict=True):
            self.latencies[int(step)] += int(count)


class Record:
    """Collects while a run goes on. Figures "after settling" begin at `settle`.

    The measured part reaches from the end of one batch to the end of another: cut anywhere else, it would hold a part
    of a batch at either end, whose results all come at once. With a single batch it reaches back to the settling.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.points: deque[Point] = deque(maxlen=MOST_POINTS)
        self.batches = 0
        self.started = 0.0
        self._settled_at: float | None = None
        self._ended_at = 0.0
        self._over = False
        self._arrived: dict[str, Mapping[str, int]] = {}
        self._first = _Sums()
        self._later = _Sums()
        self._recent: deque[tuple[float, float | None, int, int]] = deque(maxlen=_RECENT)

    def begin(self, now: float, arrived: Mapping[str, int]) -> None:
        """The queries run and the load has started."""
        self.started = self._ended_at = now
        self._arrived["begin"] = self._arrived["end"] = arrived

    def settle(self, now: float, arrived: Mapping[str, int]) -> None:
        """From here on latency, score and rates count."""
        self._settled_at = now
        self._arrived["begin"] = arrived

    def end(self, now: float, arrived: Mapping[str, int]) -> None:
        """The measured part is over."""
        self._ended_at = now
        self._arrived["end"] = arrived
        self._over = True

    def batch(self, report: BatchReport, scale: float) -> tuple[float | None, float | None]:
        """Note a finished batch; the mean latency of its results, and the width over which latencies are spread."""
        outputs = [report.delivered[name] for name in report.delivered if name in self._network.outputs]
        written = outputs or list(report.delivered.values())
        pairs = [item.latencies_seconds(report.ended_seconds) for item in written]
        seconds = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0)
        tuples = np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0, dtype=np.int64)
        mean = float(np.average(seconds, weights=tuples)) if tuples.sum() else None
        counts = Counts.of(line for line in report.lines if line.at in self._network.streams)
        offered, kept = counts.offered.total(), counts.kept.total()
        since = report.ended_seconds - self.started
        self.batches += 1
        self.points.append(Point(report.fragment, since, report.seconds, mean, offered, kept, scale))
        self._recent.append((report.ended_seconds, mean, offered, kept))
        if self._settled_at is not None and not self._over and report.ended_seconds >= self._settled_at:
            sums = self._first if self._first.ended_seconds is None else self._later
            sums.add(report)
            # Latencies count for batches cut after settling: those owe nothing to the start.
            if outputs and report.cut_seconds >= self._settled_at:
                sums.time(seconds, tuples)
        if mean is None:
            return None, None
        # Latencies that are even over a width W deviate by W / sqrt(12) from their mean.
        return mean, float(np.sqrt(12.0 * np.average((seconds - mean) ** 2, weights=tuples)))

    def _measured(self) -> _Sums:
        """The batches that count: all but the first, whose end only begins the measured part; or the only one."""
        return self._first if self._later.ended_seconds is None else self._later

    def kept_shares(self) -> dict[str, float]:
        """Share kept at each place over the measured part."""
        counts = self._measured().counts
        return {at: counts.kept[at] / offered for at, offered in counts.offered.items() if offered}

    @property
    def measured_seconds(self) -> float:
        """Length of the measured part."""
        if self._first.ended_seconds is None:
            return 0.0
        if self._later.ended_seconds is None:
            return self._first.ended_seconds - (self._settled_at or self.started)
        return self._later.ended_seconds - self._first.ended_seconds

    def latencies(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Latencies after settling, with how many tuples had each."""
        found = sorted(self._measured().latencies.items())
        seconds = np.array([step for step, _ in found], dtype=np.float64) / 1e3
        return seconds, np.array([count for _, count in found], dtype=np.int64)

    def rates(self) -> dict[str, float]:
        """Mean arrival rates over the measured part, tuples/s."""
        before, after = self._arrived["begin"], self._arrived["end"]
        length = max(self._ended_at - (self._settled_at or self.started), 1e-9)
        return {name: (after[name] - before[name]) / length for name in after}

    def throughput(self) -> dict[str, float]:
        """Tuples/s delivered to each output over the measured part."""
        length = self.measured_seconds or 1.0
        delivered = self._measured().delivered
        return {name: delivered[name] / length for name in self._network.outputs}

    def status(self, time_us: int, target: float, steered: Steered, arrived: Mapping[str, int]) -> dict[str, Any]:
        """The latest figures, for `floodway top`."""
        recent = [mean for _, mean, _, _ in self._recent if mean is not None]
        offered = sum(item[2] for item in self._recent)
        kept = sum(item[3] for item in self._recent)
        control = list(steered.control.values())
        return {
            "name": self._network.name,
            "time_us": time_us,
            "mode": steered.decision.mode,
            "target_seconds": target,
            "latency_seconds": recent[-1] if recent else None,
            "rates": dict(steered.rates),
            "keeps": dict(steered.plan.keeps),
            "load": dict(steered.plan.load),
            "overloaded": steered.plan.overloaded,
            "plan": steered.decision.plan,
            "planner": steered.planner,
            "objective": steered.objective,
            "loss": 1.0 - kept / offered if offered else 0.0,
            "scale": steered.scale,
            "unreachable": any(decision.unreachable for decision in control),
            "floor_seconds": max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
            "reasons": {name: decision.reason for name, decision in steered.control.items()},
            "arrived": dict(arrived),
            "batches": self.batches,
            "last": asdict(self.points[-1]) if self.points else None,
        }
