"""Jobs by the addresses of their agents: every agent is asked at once, and one that hangs keeps nobody waiting.

Nodes of one network are shown as that network. What an agent counted between two answers is what came meanwhile. One
that does not answer stays on the page with what it said last and the reason; it is asked again after 2, 4, 8, …
seconds, and nobody waits for its answer until it has given one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import Mode, encode
from floodway.agent.wire.signing import Security
from floodway.dashboard.job_sources import Reading, named
from floodway.errors import FloodwayError, InputError
from floodway.job.decision import checked_mode
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.timeline import Timeline
from floodway.job.status.status import Status, decode_status, merge_nodes
from floodway.network.file import parse_network
from floodway.network.model import Network

STATUS_PATHS = ("/v1/node", "/v1/status")
NETWORK_PATH = "/v1/network"
SENDER = "page"
WAIT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
"""An answer that takes longer counts as none; one that takes longer than a wait is taken by the next look."""
LONGEST_BREAK_SECONDS = 30.0
MOST_THREADS = 32


class UrlSource:
    """Jobs by the addresses of their agents."""

    def __init__(
        self,
        urls: Iterable[str],
        security: Security | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        """A read token opens figures to who may not switch: it is tried first, and then the key."""
        given = security or Security()
        readers = [given] if given.token is None else [Security(tls=given.tls, token=given.token), given]
        self._agents = {
            url: _Agent([Client(url, one, ANSWER_SECONDS) for one in readers]) for url in dict.fromkeys(urls)
        }
        self._clock, self._calendar = clock, calendar
        self._timelines: dict[str, Timeline[Counts]] = {}
        threads = min(MOST_THREADS, max(1, len(self._agents)))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ask agents")

    def read(self) -> list[Reading]:
        """What every agent has said last; one that is silent stays and says so."""
        now = self._clock()
        asked = [agent.ask(self._pool, now) for agent in self._agents.values()]
        wait([future for future in asked if future is not None], timeout=WAIT_SECONDS)
        for agent in self._agents.values():
            agent.take(now)
        second = int(self._calendar())
        return named([_reading(group, self._timeline(group, second)) for group in self._groups()])

    def switch(self, reading: Reading, mode: str) -> None:
        """Ask the agent itself, or every node of the network; who did not take it is named."""
        wanted, missed = checked_mode(mode), []
        for url in reading.place.split():
            agent = self._agents[url]
            body = Mode(network=agent.network_name, sender=SENDER, receiver=agent.name, mode=wanted)
            try:
                agent.client.post_bytes(Mode.path, encode(body))
            except PeerError as error:
                missed.append(f"{agent.name}: {error.message}")
        if missed:
            raise InputError(f"not switched: {'; '.join(missed)}", hint="Switch it again once it answers")

    def _timeline(self, group: list[_Agent], second: int) -> Timeline[Counts] | None:
        """What these agents were seen to count; another one once any of them counts from the beginning again."""
        place = _place(group)
        for agent in group:
            since, counts = agent.counted(second)
            if counts is None:
                self._timelines.pop(place, None)
            elif since is not None:
                self._timelines.setdefault(place, Timeline(Counts)).saw(counts, since, second)
        return self._timelines.get(place)

    def _groups(self) -> list[list[_Agent]]:
        """Nodes of one network together, unless two say that they are the same node; every other agent alone."""
        found: dict[str, list[_Agent]] = {}
        for agent in self._agents.values():
            found.setdefault(agent.network_name if agent.is_node else agent.client.url, []).append(agent)
        groups = []
        for agents in found.values():
            one_network = len({agent.name for agent in agents}) == len(agents)
            groups += [agents] if one_network else [[agent] for agent in agents]
        return groups


class _Agent:
    """One agent as it was heard last."""

    def __init__(self, readers: list[Client]) -> None:
        self.client = readers[-1]
        self.status: Status | None = None
        self.network: Network | None = None
        self.problem: str | None = None
        self._ways = [(reader, path) for reader in readers for path in STATUS_PATHS]
        self._known: tuple[Client, str] | None = None
        self._network_asked = False
        self._failures = 0
        self._next = float("-inf")
        self._future: Future[Status] | None = None
        self._answered = False
        self._counted: tuple[int, Counts] | None = None

    @property
    def name(self) -> str:
        return self.client.url if self.status is None else self.status.node or self.status.name

    @property
    def is_node(self) -> bool:
        return self.status is not None and bool(self.status.node)

    @property
    def network_name(self) -> str:
        return "" if self.status is None else self.status.network

    def ask(self, pool: ThreadPoolExecutor, now: float) -> Future[Status] | None:
        """Ask anew if it is time; what to wait for: nothing of an agent that has not answered of late."""
        if self._future is None and now >= self._next:
            self._future = pool.submit(self._get)
            return self._future if self._failures == 0 else None
        return None

    def take(self, now: float) -> None:
        """Take its answer, if it has come."""
        if self._future is None:
            return
        if not self._future.done():
            self._failed(f"{self.client.url} has not answered yet", now)
            return
        future, self._future = self._future, None
        try:
            self.status, self.problem, self._failures, self._answered = future.result(), None, 0, True
        except FloodwayError as error:
            self._failed(str(error), now)

    def counted(self, second: int) -> tuple[int | None, Counts | None]:
        """If it has answered: since when, and what it has counted since; None for counts that started over."""
        if not self._answered or self.status is None or self.status.ledger is None:
            return None, Counts()
        self._answered = False
        counts, before = self.status.counts(), self._counted
        self._counted = second, counts
        return (None, Counts()) if before is None else (before[0], counts.since(before[1]))

    def _failed(self, problem: str, now: float) -> None:
        self.problem = problem
        self._failures += 1
        self._next = now + min(2.0**self._failures, LONGEST_BREAK_SECONDS)

    def _get(self) -> Status:
        refused = PeerError("malformed", f"{self.client.url} does not tell its status")
        for reader, path in self._ways if self._known is None else [self._known, *self._ways]:
            try:
                status = decode_status(reader.get_json(path), f"{self.client.url}{path}")
            except PeerError as error:
                if error.reason == "unreachable":
                    raise
                refused = error
                continue
            except InputError as error:
                refused = PeerError("malformed", error.message)
                continue
            self._known = reader, path
            self._get_network(reader, status)
            return status
        raise refused

    def _get_network(self, reader: Client, status: Status) -> None:
        if self._network_asked or not status.node:
            return
        try:
            text = reader.get_json(NETWORK_PATH)["network"]
            self.network = parse_network(str(text), source=self.client.url)
            self._network_asked = True
        except PeerError as error:
            self._network_asked = not error.unreachable
        except (FloodwayError, KeyError, TypeError):
            self._network_asked = True


def _place(agents: list[_Agent]) -> str:
    return " ".join(agent.client.url for agent in agents)


def _reading(agents: list[_Agent], timeline: Timeline[Counts] | None) -> Reading:
    first = agents[0]
    if len(agents) > 1:
        names: tuple[str, ...] = (first.network_name, f"{first.network_name}, {first.client.url}")
    elif first.is_node:
        full = f"{first.network_name}: {first.name}"
        names = (first.name, full, f"{full}, {first.client.url}")
    else:
        names = (first.name, f"{first.name}, {first.client.url}")
    statuses = {agent.name: agent.status for agent in agents if agent.status is not None}
    return Reading(
        name=names[0],
        status=merge_nodes(statuses) if len(agents) > 1 else first.status,
        network=next((agent.network for agent in agents if agent.network), None),
        problem="; ".join(agent.problem for agent in agents if agent.problem) or None,
        timeline=timeline,
        place=_place(agents),
        names=names,
    )
