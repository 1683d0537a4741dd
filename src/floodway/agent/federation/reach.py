"""Which partners can be spoken to: one that did not answer is left alone for a while, twice as long each time.

    wait = FIRST · 2^(failures on end − 1), at most LONGEST

A message that is not delivered costs its time-out, and the loop has other things to do. Whatever a partner says ends
the wait at once.
"""

from __future__ import annotations

import threading

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0


class Reach:
    """How often on end each partner did not answer, and until when it is left alone; safe from several threads.

    >>> reach = Reach()
    >>> reach.missed("B", now=0.0), reach.missed("B", now=1.0)
    (1.0, 2.0)
    >>> reach.worth_trying("B", now=2.9), reach.worth_trying("B", now=3.0)
    (False, True)
    >>> reach.heard("B")
    >>> reach.worth_trying("B", now=2.0)
    True
    """

    def __init__(self, *, first_seconds: float = FIRST_SECONDS, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._missed: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def worth_trying(self, partner: str, now: float) -> bool:
        """Whether it may answer by now."""
        with self._lock:
            return now >= self._until.get(partner, now)

    def missed(self, partner: str, now: float) -> float:
        """It did not answer: the seconds for which it is left alone."""
        with self._lock:
            count = self._missed[partner] = self._missed.get(partner, 0) + 1
            wait = min(self._longest, self._first * 2.0 ** min(count - 1, 30))
            self._until[partner] = now + wait
            return wait

    def heard(self, partner: str) -> None:
        """It spoke, or answered."""
        with self._lock:
            self._missed.pop(partner, None)
            self._until.pop(partner, None)
