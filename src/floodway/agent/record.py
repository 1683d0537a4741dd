"""What a run remembers for its report: batches, latencies, and how much had arrived when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from floodway.agent.report import Point
from floodway.agent.steering import Steered
from floodway.network.model import Network
from floodway.spark.fragment_query import BatchReport
from floodway.spark.ledger import LedgerLine, counts_by_place

_RECENT = 20


@dataclass(frozen=True)
class _Measured:
    """A batch that ended in the measured part, with the latencies of its results at outputs."""

    report: BatchReport
    seconds: NDArray[np.float64]
    tuples: NDArray[np.int64]


class Record:
    """Collects while a run goes on. Figures "after settling" begin at `settle`.

    The measured part reaches from the end of one batch to the end of another: cut anywhere else, it would hold a part
    of a batch at either end, whose results all come at once. With a single batch it reaches back to the settling.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.points: list[Point] = []
        self.started = 0.0
        self._settled_at: float | None = None
        self._ended_at = 0.0
        self._over = False
        self._arrived: dict[str, Mapping[str, int]] = {}
        self._batches: list[_Measured] = []
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

    def batch(self, report: BatchReport, scale: float) -> float | None:
        """Note a finished batch; the mean latency of its results."""
        outputs = [report.delivered[name] for name in report.delivered if name in self._network.outputs]
        written = outputs or list(report.delivered.values())
        pairs = [item.latencies_seconds(report.ended_seconds) for item in written]
        seconds = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0)
        tuples = np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0, dtype=np.int64)
        mean = float(np.average(seconds, weights=tuples)) if tuples.sum() else None
        counts = counts_by_place(line for line in report.lines if line.at in self._network.streams)
        offered, kept = (sum(count[i] for count in counts.values()) for i in (0, 1))
        since = report.ended_seconds - self.started
        self.points.append(Point(report.fragment, since, report.seconds, mean, offered, kept, scale))
        self._recent.append((report.ended_seconds, mean, offered, kept))
        if self._settled_at is not None and not self._over and report.ended_seconds >= self._settled_at:
            self._batches.append(_Measured(report, seconds, tuples if outputs else tuples[:0]))
        return mean

    def _measured(self) -> list[_Measured]:
        """The batches that count: all but the first, whose end only begins the measured part; or the only one."""
        return self._batches[1:] or self._batches

    def lines(self) -> list[LedgerLine]:
        """The ledger lines of the measured part."""
        return [line for item in self._measured() for line in item.report.lines]

    @property
    def measured_seconds(self) -> float:
        """Length of the measured part."""
        if not self._batches:
            return 0.0
        first = self._batches[0].report.ended_seconds if len(self._batches) > 1 else self._settled_at or self.started
        return self._batches[-1].report.ended_seconds - first

    def latencies(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Latencies after settling, with how many tuples had each."""
        # They count for batches cut after settling: those owe nothing to the start.
        since = self._settled_at or 0.0
        counted = [item for item in self._measured() if item.report.journal.timestamp_ms / 1e3 >= since]
        if not counted:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        seconds = [item.seconds[: len(item.tuples)] for item in counted]
        return np.concatenate(seconds), np.concatenate([item.tuples for item in counted])

    def rates(self) -> dict[str, float]:
        """Mean arrival rates over the measured part, tuples/s."""
        before, after = self._arrived["begin"], self._arrived["end"]
        length = max(self._ended_at - (self._settled_at or self.started), 1e-9)
        return {name: (after[name] - before[name]) / length for name in after}

    def throughput(self) -> dict[str, float]:
        """Tuples/s delivered to each output over the measured part."""
        length = self.measured_seconds or 1.0
        delivered = dict.fromkeys(self._network.outputs, 0)
        for item in self._measured():
            for name, written in item.report.delivered.items():
                if name in delivered:
                    delivered[name] += written.rows
        return {name: count / length for name, count in delivered.items()}

    def status(self, now: float, target: float, steered: Steered, arrived: Mapping[str, int]) -> dict[str, Any]:
        """The latest figures, for `floodway top`."""
        recent = [mean for _, mean, _, _ in self._recent if mean is not None]
        offered = sum(item[2] for item in self._recent)
        kept = sum(item[3] for item in self._recent)
        control = list(steered.control.values())
        return {
            "name": self._network.name,
            "time_us": int(now * 1e6),
            "mode": steered.decision.mode,
            "target_seconds": target,
            "latency_seconds": recent[-1] if recent else None,
            "rates": dict(steered.rates),
            "keeps": dict(steered.plan.keeps),
            "load": dict(steered.plan.load),
            "overloaded": steered.plan.overloaded,
            "loss": 1.0 - kept / offered if offered else 0.0,
            "scale": steered.scale,
            "unreachable": any(decision.unreachable for decision in control),
            "floor_seconds": max((d.floor_seconds for d in control if d.floor_seconds is not None), default=None),
            "reasons": {name: decision.reason for name, decision in steered.control.items()},
            "arrived": dict(arrived),
            "batches": len(self.points),
            "last": asdict(self.points[-1]) if self.points else None,
        }
