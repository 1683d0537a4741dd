"""What a node process asks for its plans: alone, by D-FIT, or under a coordinator. Switching is one setting.

All three give a planner over the node's own part of the network (`network/part.py`), are told what the node measures,
tick, tell how they stand, and bring the routes of the node's HTTP server. None of them ever makes the node wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from starlette.routing import BaseRoute

from floodway.agent.planes.alone import AlonePlanning
from floodway.agent.planes.coordinated import Post, UploadedPlanner, post_from_journal, post_to_journal
from floodway.agent.planes.coordinator import Office
from floodway.agent.planes.coordinator_journal import CoordinatorJournal
from floodway.agent.planes.dfit.journal import from_journal, to_journal
from floodway.agent.planes.dfit.own import UNMEASURED, Measured
from floodway.agent.planes.dfit.planner import OwnTablePlanner
from floodway.agent.planes.dfit.state import Role, Settings
from floodway.agent.planes.dfit.topology import Topology
from floodway.agent.planes.machines import CoordinatorMachine, DFitMachine, Hurry, PostMachine
from floodway.agent.planes.peers import Machine, PeerLoop, Peers, peer_routes
from floodway.agent.wire.messages import AnyMessage
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.errors import InputError
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.store.state_files import write_atomically
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.network.suggest import did_you_mean
from floodway.planning.factory import check_choice
from floodway.planning.plan import Objective, Planner

KINDS = ("alone", "dfit", "coordinator")
JOURNAL = "control.json"
JOURNAL_SECONDS = 1.0


def silent_peers(status: Mapping[str, object]) -> tuple[str, ...]:
    """The peers that a control plane's status calls silent."""
    found = status.get("cut_off")
    return tuple(map(str, found)) if isinstance(found, list) else ()


class ControlPlane(Protocol):
    """Plans for one node. `mode` is what a peer asked for last, None if nobody did."""

    mode: str | None

    @property
    def planner(self) -> Planner:
        """Plans over the node's own streams and links, with what is known now."""

    def observe(
        self, rates: Mapping[str, float], costs: Mapping[str, float], now: float, *, scale: float = 1.0
    ) -> None:
        """Rates (tuples/s) at the node's streams and links, costs (CPU-seconds) of its operators.

        `scale` is the capacity the node turns out to have, unless its costs say so already.
        """

    def observe_results(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now: float) -> None:
        """Mean latency (seconds, from the first arrival) of a batch's results at the node's outputs.

        `target_seconds` is the end-to-end target, `depth` the number of queries on the longest path to them.
        """

    def share_factor(self, operators: Collection[str], now: float) -> float:
        """What is left of its share of the target for a query with these operators, in (0, 1].

        Below 1 when results are late at outputs of later queries (`planes/lateness.py`).
        """

    def tick(self, now: float) -> None:
        """Time has passed; `start` sees to it too, so calling this is only quicker."""

    def status(self) -> dict[str, object]:
        """How it stands; `cut_off` names peers that are silent."""

    def routes(self) -> list[BaseRoute]:
        """What peers talk to."""

    def start(self) -> None:
        """Begin to talk to peers."""

    def stop(self) -> None:
        """End it."""


class Alone:
    """Plans for itself only: the papers' uncoordinated shedding."""

    name: str

    def __init__(
        self,
        network: Network,
        node: str,
        *,
        planner: str = "exact",
        objective: Objective = Objective.THROUGHPUT,
        epsilon: float = 0.05,
        headroom: float = 1.0,
    ) -> None:
        self.mode: str | None = None
        self.name, self.network = node, network.name
        self._planning = AlonePlanning(
            node_part(network, node), planner=planner, objective=objective, epsilon=epsilon, headroom=headroom
        )
        self._measured = UNMEASURED
        self._planning.planner(UNMEASURED)  # refuses what is wrong before anything runs

    @property
    def planner(self) -> Planner:
        """Plans over the node's own streams and links."""
        return self._planning.planner(self._measured)

    def observe(
        self, rates: Mapping[str, float], costs: Mapping[str, float], now: float, *, scale: float = 1.0
    ) -> None:
        """Take new costs; rates come with every plan."""
        self._measured = Measured(dict(costs), {}, scale)

    def observe_results(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now: float) -> None:
        """Nobody is told."""

    def share_factor(self, operators: Collection[str], now: float) -> float:
        """Nobody tells: the whole share."""
        return 1.0

    def tick(self, now: float) -> None:
        """Nothing is due, ever."""

    def status(self) -> dict[str, object]:
        """Nobody to be cut off from."""
        return {"cut_off": []}

    def routes(self) -> list[BaseRoute]:
        """Status and mode; tables and plans are refused."""
        return peer_routes(_Deaf(self.name, self.network), status=self.status, on_mode=self._set_mode)

    def start(self) -> None:
        """Nothing to begin."""

    def stop(self) -> None:
        """Nothing to end."""

    def _set_mode(self, mode: str) -> None:
        self.mode = mode


class _Deaf:
    """A machine that takes no messages."""

    def __init__(self, name: str, network: str) -> None:
        self.name, self.network = name, network

    def hear(self, message: AnyMessage, now_seconds: float) -> AnyMessage | None:
        raise RefusedError("unknown", f"{self.name!r} plans alone")

    def tick(self, now_seconds: float) -> tuple[AnyMessage, ...]:
        return ()

    def status(self, now_seconds: float) -> dict[str, object]:
        return {}


class _Talking:
    """Common to those that talk to peers: the loop, the journal, the routes."""

    def __init__(
        self,
        machine: Machine,
        urls: Mapping[str, str],
        security: Security,
        journal: Path,
        text: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self.mode: str | None = None
        self._machine = machine
        self._clock = clock
        self._file = journal
        self._text = text
        self._written = ""
        self._due = 0.0
        others = {name: url for name, url in urls.items() if name != machine.name}
        self.peers = Peers(machine, others, security, clock=clock)
        self._loop = PeerLoop(machine, self.peers, clock=clock, after=self._journal)

    def tick(self, now: float) -> None:
        """Send what is due and keep the journal."""
        self._loop.tick(now)

    def status(self) -> dict[str, object]:
        """The machine's status, traffic and errors."""
        found = self._machine.status(self._clock())
        return {**found, "traffic": self.peers.traffic.as_dict(), "error": self._loop.error}

    def routes(self) -> list[BaseRoute]:
        """What peers talk to."""
        return peer_routes(self._machine, status=self.status, on_mode=self._set_mode, clock=self._clock)

    def start(self) -> None:
        """Begin to tick."""
        self._loop.start()

    def stop(self) -> None:
        """End ticking and sending; the journal is brought up to date."""
        self._loop.stop()
        self._due = 0.0
        self._journal(self._clock())

    def _set_mode(self, mode: str) -> None:
        self.mode = mode

    def _journal(self, now: float) -> None:
        """Write the journal when it has changed, at most once a second."""
        if now < self._due:
            return
        self._due = now + JOURNAL_SECONDS
        text = self._text()
        if text != self._written:
            write_atomically(self._file, text)
            self._written = text


class _Planning(_Talking):
    """A node's plane: what it measures goes to its machine, and plans come from what the machine holds at the time."""

    _observe: Callable[[Mapping[str, float], Measured, float], None]
    _planner: Planner
    _hurry: Hurry

    @property
    def planner(self) -> Planner:
        """Plans for the node's own part of the network."""
        return self._planner

    def observe(
        self, rates: Mapping[str, float], costs: Mapping[str, float], now: float, *, scale: float = 1.0
    ) -> None:
        """Note what the node measures; the machine says at its next tick whom that concerns."""
        self._observe(rates, Measured(dict(costs), {}, scale), now)

    def observe_results(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now: float) -> None:
        """Note how late the node's results are; nodes before it hear of it with the next message."""
        self._hurry.measured(latencies, target_seconds, depth, now)

    def share_factor(self, operators: Collection[str], now: float) -> float:
        """What is left of its share of the target for a query with these operators."""
        return self._hurry.share_factor(operators, now)


class DistributedFit(_Planning):
    """D-FIT: plans for itself and all below it from its own table."""

    def __init__(
        self,
        role: Role,
        urls: Mapping[str, str],
        security: Security,
        state_dir: Path,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
    ) -> None:
        journal = state_dir / JOURNAL
        found = _read(journal)
        self.machine = DFitMachine(role, None if found is None else from_journal(role, found, clock()))
        super().__init__(self.machine, urls, security, journal, lambda: to_journal(role, self.machine.state), clock)
        self._observe, self._hurry = self.machine.observe, self.machine.hurry
        self._planner = OwnTablePlanner(role, lambda: self.machine.state)


class Coordinated(_Planning):
    """A node under a coordinator."""

    def __init__(
        self,
        post: Post,
        urls: Mapping[str, str],
        security: Security,
        state_dir: Path,
        *,
        headroom: float = 1.0,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
    ) -> None:
        journal = state_dir / JOURNAL
        found = _read(journal)
        self.machine = PostMachine(post, None if found is None else post_from_journal(post, found))
        super().__init__(
            self.machine, urls, security, journal, lambda: post_to_journal(post, self.machine.state), clock
        )
        self._observe, self._hurry = self.machine.observe, self.machine.hurry
        self._planner = UploadedPlanner(post, lambda: self.machine.state, headroom)


class Coordinator(_Talking):
    """The coordinator itself: no node, the same shell."""

    def __init__(
        self,
        office: Office,
        urls: Mapping[str, str],
        security: Security,
        state_dir: Path,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
    ) -> None:
        file, journal = state_dir / "coordinator.json", CoordinatorJournal(office)
        found = _read(file)
        self.machine = CoordinatorMachine(office, None if found is None else journal.from_text(found))
        super().__init__(self.machine, urls, security, file, lambda: journal.to_text(self.machine.state), clock)


def make_control_plane(
    kind: str,
    network: Network,
    node: str,
    security: Security,
    urls: Mapping[str, str],
    state_dir: Path,
    *,
    planner: str | None = None,
    objective: Objective = Objective.THROUGHPUT,
    epsilon: float = 0.05,
    headroom: float = 1.0,
) -> ControlPlane:
    """The control plane of one node. `urls` (agent name to address) go before those of the network file.

    The planner is that of a node alone; under a coordinator it is the coordinator's, and D-FIT has its own.
    """
    check_plane(kind, planner, objective)
    if kind == "alone":
        return Alone(network, node, planner=planner or "exact", objective=objective, epsilon=epsilon, headroom=headroom)
    known = {**{name: entry.url for name, entry in network.nodes.items() if entry.url is not None}, **urls}
    if kind == "dfit":
        role = Role(Topology(network, epsilon, headroom), node, Settings())
        return DistributedFit(role, known, security, state_dir)
    if kind == "coordinator":
        return Coordinated(Post(network, node), known, security, state_dir, headroom=headroom)
    raise InputError(f"no control plane is called {kind!r}", hint=did_you_mean(kind, KINDS))


def check_plane(kind: str, planner: str | None, objective: Objective) -> None:
    """Refuse a planner or an objective that a control plane cannot have."""
    if kind != "dfit":
        check_choice(planner or "exact", objective)
        return
    others = "Use --control coordinator, or alone"
    if planner not in (None, "dfit"):
        raise InputError(f"D-FIT plans from the nodes' own tables, not by the {planner!r} planner", hint=others)
    if objective is not Objective.THROUGHPUT:
        raise InputError(
            f"D-FIT's tables are for weighted throughput, not for the objective {objective.value!r}", hint=others
        )


def make_coordinator(
    network: Network,
    security: Security,
    urls: Mapping[str, str],
    state_dir: Path,
    *,
    planner: str = "exact",
    objective: Objective = Objective.THROUGHPUT,
    epsilon: float = 0.05,
    headroom: float = 1.0,
) -> Coordinator:
    """The coordinator of a network; `urls` of its nodes go before those of the network file."""
    known = {**{name: entry.url for name, entry in network.nodes.items() if entry.url is not None}, **urls}
    return Coordinator(Office(network, planner, epsilon, headroom, objective), known, security, state_dir)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
