"""Speaking to partners: one request, one answer; one that does not answer is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from floodway.agent.federation.figures import Figures
from floodway.agent.federation.keys import Credentials
from floodway.agent.federation.reach import Reach
from floodway.agent.wire.client import Client, PeerError
from floodway.contracts.federation_file import Federation


class Partners:
    """The members with whom one has a contract, by name; what they do not answer is counted in the figures."""

    def __init__(
        self,
        name: str,
        federation: Federation,
        credentials: Credentials,
        reach: Reach,
        figures: Figures,
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
