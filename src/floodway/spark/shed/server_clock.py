"""The clock of a Spark Connect server, as far as a client knows it: its batches have their timestamps from there.

Decisions come into force by those timestamps. On the client's own clock, a server that is ahead of it would go by its
first decision for ever, and one that is behind by old ones. So the client asks: the answer is from between the question
and its arrival, and from then on the client's steady clock counts. The server's clock may be set, so it is asked again
every few seconds, and at once when a batch has ended at a time that cannot be.

    the server's time is in [clock() - doubt_us, clock()]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGAIN_US, SOON_US = 10_000_000, 1_000_000
"""How long an answer is good, and one that a batch speaks against: reports may be late."""

LATE_US = 2_000_000
"""How long after its end a batch is reported, at most, for all that is known of clocks."""

DRIFT = 5_000
"""Clocks drift apart by less than one part in so many."""

QUESTIONS, GOOD_US = 5, 50_000
"""How often the server is asked at most, and how exact an answer is that ends it."""


class ServerClock:
    """Microseconds of the epoch by the server; `ask` gets them from there, `steady_us` is the client's own clock.

    >>> passed = iter(range(0, 1000, 10))
    >>> clock = ServerClock(lambda: 5_000_000, lambda: next(passed))
    >>> clock(), clock.doubt_us
    (5000020, 10)
    """

    def __init__(
        self, ask: Callable[[], int], steady_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000
    ) -> None:
        self._ask = ask
        self._steady_us = steady_us
        self._lock = Lock()
        self.doubt_us = self._ahead_us = self._asked_us = 0
        self._set()

    def __call__(self) -> int:
        """Not earlier than it is there, and at most `doubt_us` later."""
        return self._steady_us() + self._ahead_us

    def look(self, ended_us: int | None = None) -> None:
        """Ask again, if it is time to; `ended_us` is when a batch has ended that was just reported."""
        now_us = self()
        contradicted = ended_us is not None and not now_us - LATE_US <= ended_us <= now_us
        with self._lock:
            passed_us = self._steady_us() - self._asked_us
            if passed_us >= (SOON_US if contradicted else AGAIN_US):
                doubt_us, ahead_us = self._question()
                drift_us = passed_us // DRIFT
                known_us = self.doubt_us + 2 * drift_us
                if ahead_us - doubt_us > self._ahead_us + drift_us or ahead_us < self._ahead_us + drift_us - known_us:
                    self._set()  # both cannot be: it was set
                elif doubt_us < known_us:
                    self.doubt_us, self._ahead_us = doubt_us, ahead_us
                else:  # a server that is busy answers late
                    self.doubt_us, self._ahead_us = known_us, self._ahead_us + drift_us

    def _set(self) -> None:
        answers = [self._question()]
        while answers[-1][0] > GOOD_US and len(answers) < QUESTIONS:
            answers.append(self._question())
        self.doubt_us, self._ahead_us = min(answers)

    def _question(self) -> tuple[int, int]:
        """How long the answer took, and by how much the server is ahead of the steady clock, at most."""
        before_us = self._steady_us()
        told_us = self._ask()
        self._asked_us = self._steady_us()
        return self._asked_us - before_us, told_us - before_us


def server_clock(spark: SparkSession) -> ServerClock:
    """The clock of a session's server."""
    return ServerClock(lambda: int(spark.sql("SELECT unix_micros(current_timestamp()) AS now").collect()[0]["now"]))
