"""What a controller expects of the next batch: how long it takes, and how much work fits into it."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_SHARE = 1.5
"""Mean latency over batch duration in a steady state: half a batch of waiting and one of processing."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The duration of a batch that is offered N and keeps n units of work, and the work that a batch may hold.

        P = a + s N + c n

    `overhead_seconds` is a, `offered_cost` s and `kept_cost` c, both in seconds per unit of work. `fits` is the work
    for which the law plans a batch, whatever waits; None while what was measured does not tell.

    >>> forecast = Forecast(overhead_seconds=0.5, kept_cost=0.01, offered_cost=0.002)
    >>> forecast.seconds(offered=400, kept=100), round(forecast.work(2.3, offered=400))
    (2.3, 100)
    """

    overhead_seconds: float
    kept_cost: float
    offered_cost: float = 0.0
    fits: float | None = None

    def seconds(self, offered: float, kept: float) -> float:
        """The expected duration of a batch."""
        return self.overhead_seconds + self.offered_cost * offered + self.kept_cost * kept

    def work(self, seconds: float, offered: float) -> float:
        """The work that a batch of this duration can keep of what it is offered, at least 0."""
        return max(0.0, (seconds - self.overhead_seconds - self.offered_cost * offered) / self.kept_cost)

    def capacity_needed(self, rate: float, seconds: float) -> float | None:
        """How many times the present capacity keeps all of this rate in batches of this duration; None for no number.

        The overhead of a batch does not shrink with capacity.

        >>> round(Forecast(overhead_seconds=0.5, kept_cost=0.01).capacity_needed(150.0, 2.0), 3)
        2.0
        """
        room = seconds - self.overhead_seconds
        return (self.kept_cost + self.offered_cost) * rate * seconds / room if room > 0.0 else None

    def whole_work(self, seconds: float) -> float:
        """The work of a batch of this duration that keeps all it is offered, at least 0."""
        return max(0.0, (seconds - self.overhead_seconds) / (self.kept_cost + self.offered_cost))
