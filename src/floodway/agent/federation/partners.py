"""Speaking to partners: one request, one answer; one that does not answer is left alone for a while.

It is left alone for twice as long each time:

    wait = FIRST · 2^(failures on end − 1), at most LONGEST

A message that is not delivered costs its time-out, and the loop has other things to do. Whatever a partner says ends
the wait at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floodway.agent.federation.credentials import Credentials
from floodway.agent.federation.participant_figures import ParticipantFigures
from floodway.agent.wire.client import Client, PeerError
from floodway.contracts.federation_file import Federation

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


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things happen, and how long they may take, in seconds.

    `lease` is renewed three times in its length; an origin waits `margin` beyond it, for clocks that differ. After a
    move that failed nothing is offered for `failed_move`.
    """

    tick: float = 0.2
    measure: float = 1.0
    lease: float = 10.0
    margin: float = 2.0
    bill: float = 10.0
    message: float = 2.0
    move: float = 90.0
    failed_move: float = 20.0
    patience: float = 10.0


class Partners:
    """The members with whom one has a contract, by name; what they do not answer is counted in the figures."""

    def __init__(
        self,
        name: str,
        federation: Federation,
        credentials: Credentials,
        reach: Reach,
        figures: ParticipantFigures,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._federation = federation
        self._credentials = credentials
        self._figures = figures
        self._clock = clock
        self.reach = reach

    def post(self, partner: str, path: str, body: object, *, timeout_seconds: float, always: bool = False) -> Any:
        """The partner's answer. `PeerError` for one that gives none, that is left alone, or that has left the file.

        With `always` it is asked even while it is left alone: a move waits for its answer.
        """
        try:
            if not always and not self.reach.worth_trying(partner, self._clock()):
                raise PeerError("unreachable", f"{partner} did not answer and is left alone for a while")
            answer = self._answer(partner, path, body, timeout_seconds)
        except PeerError as error:
            self._figures.unreachable[f"{partner}: {error.reason}"] += 1
            raise
        self.reach.heard(partner)
        return answer

    def _answer(self, partner: str, path: str, body: object, timeout_seconds: float) -> Any:
        try:
            return self._client(partner, timeout_seconds).post_json(path, body)
        except PeerError as error:
            if error.reason == "unreachable":
                self.reach.missed(partner, self._clock())
            raise

    def _client(self, partner: str, timeout_seconds: float) -> Client:
        """To a partner; `PeerError` for one that has left the file, to whom something may still be owed."""
        member = self._federation.members.get(partner)
        if member is None or partner not in self._federation.partners(self._name):
            raise PeerError("gone", f"{self._name} has no contract with {partner}", hint="Settle it with them by hand")
        return Client(member.url, self._credentials.sending(partner), timeout_seconds, peer=partner)
