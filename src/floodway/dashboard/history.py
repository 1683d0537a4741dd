"""Points of the charts: what one stretch of a job's time came to; and the latest of them, so that a page has a past."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SAMPLES = 900


@dataclass(frozen=True, slots=True)
class Sample:
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
    ...     history.add(Sample(time))
    >>> [sample.time for sample in history.samples()]
    [1.0, 2.0]
    """

    def __init__(self, most: int = SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=most)

    def add(self, sample: Sample) -> None:
        """Note a sample, unless it belongs to a second that has one or lies before it."""
        if not self._samples or int(sample.time) > int(self._samples[-1].time):
            self._samples.append(sample)

    def fill(self, samples: Iterable[Sample]) -> None:
        """Note several, the oldest first."""
        for sample in samples:
            self.add(sample)

    def samples(self) -> list[Sample]:
        """The oldest first."""
        return list(self._samples)

    @property
    def latest(self) -> Sample | None:
        """The last one, None before the first."""
        return self._samples[-1] if self._samples else None
