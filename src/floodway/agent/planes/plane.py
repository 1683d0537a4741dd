"""What a node process asks for its plans: alone, by D-FIT, or under a coordinator. Switching is one setting.

Each is a machine without I/O (`agent.py`) under the one shell of this module. None of them ever makes the node wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Generic

from starlette.routing import BaseRoute

from floodway.agent.planes.agent import Agent, Machine, NodeMachine, State
from floodway.agent.planes.alone import Alone
from floodway.agent.planes.coordinated import CoordinatedNode
from floodway.agent.planes.coordinator import Coordinator
from floodway.agent.planes.coordinator_state import CoordinatorState, check_advance
from floodway.agent.planes.dfit.agent import DFit
from floodway.agent.planes.dfit.own import NodeMeasures
from floodway.agent.planes.dfit.topology import ClusterTopology
from floodway.agent.planes.peers import Peers, peer_routes
from floodway.agent.wire.messages import COORDINATOR
from floodway.agent.wire.refusals import RefusedError
from floodway.agent.wire.signing import Security
from floodway.errors import InputError, suggestion
from floodway.job.clocks import PROCESS_CLOCK
from floodway.job.options.options import JobOptions
from floodway.job.store.store import LocalStore
from floodway.network.model import Network
from floodway.planning.factory import check_choice
from floodway.planning.plan import Objective, Planner
from floodway.planning.program import Program
from floodway.planning.windows.window_drop import WindowShape

log = logging.getLogger(__name__)

KINDS = ("alone", "dfit", "coordinator")
TICK_SECONDS = 0.1
JOURNAL_SECONDS = 1.0


def silent_peers(status: Mapping[str, object]) -> tuple[str, ...]:
    """The peers that a control plane's status calls silent."""
    found = status.get("cut_off")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _refuse_mode(mode: str) -> None:
    raise RefusedError("unknown", "nothing is dropped here, so there is no mode", hint="Ask the nodes of the network")


class Plane(Generic[State]):
    """The shell of an agent: its clock and its ticks, its peers, its journal, the routes of its HTTP server.

    `keep_mode` gets the mode that an operator asks for, and returns when it is durable: the answer promises that.
    Without a `folder` nothing is journaled.
    """

    def __init__(
        self,
        machine: Machine[State],
        urls: Mapping[str, str] | None = None,
        security: Security | None = None,
        folder: Path | None = None,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
    ) -> None:
        self.keep_mode: Callable[[str], None] = _refuse_mode
        self.error: str | None = None
        self._clock = clock
        self._store = None if folder is None else LocalStore(folder)
        self._file = "coordinator.json" if machine.name == COORDINATOR else "control.json"
        kept = None if self._store is None else self._store.read(self._file)
        text = None if kept is None else kept.decode(errors="replace")
        known = None if text is None else machine.from_journal(text, clock())
        if text is not None and known is None:
            log.warning("%s/%s is damaged or another agent's: plans are agreed on again", folder, self._file)
        self.agent = Agent(machine, known)
        others = {name: url for name, url in (urls or {}).items() if name != machine.name}
        self.peers = Peers(self.agent, others, security or Security(), clock=clock)
        self._written, self._journal_due = "", 0.0
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def status(self) -> dict[str, object]:
        """How the agent stands; `cut_off` names peers that are silent. With traffic and the last error."""
        return {**self.agent.status(self._clock()), "traffic": self.peers.traffic.to_dict(), "error": self.error}

    def routes(self) -> list[BaseRoute]:
        """What peers talk to."""
        return peer_routes(self.agent, status=self.status, on_mode=lambda mode: self.keep_mode(mode), clock=self._clock)

    def start(self) -> None:
        """Begin to tick, and to talk to peers."""
        self._thread = threading.Thread(target=self._run, name=f"ticks of {self.agent.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End ticking and sending; the journal is brought up to date."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        self.peers.stop()
        self._journal_due = 0.0
        self._journal(self._clock())

    def tick(self, now: float) -> None:
        """Send what is due and keep the journal; the thread does it too, so calling this is only quicker."""
        with self._turn:
            for message in self.agent.tick(now):
                self.peers.send(message)
            self._journal(now)

    def _run(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                self.tick(self._clock())
                self.error = None
            except Exception as error:  # the thread must live; what went wrong is in the status
                self.error = f"{type(error).__name__}: {error}"

    def _journal(self, now: float) -> None:
        """Write the journal when it has changed, at most once a second."""
        if self._store is None or now < self._journal_due:
            return
        self._journal_due = now + JOURNAL_SECONDS
        text = self.agent.machine.to_journal(self.agent.state)
        if text and text != self._written:
            self._store.write(self._file, f"{text}\n".encode())
            self._written = text


class ControlPlane(Plane[State]):
    """What a node process asks for its plans; nothing here makes the node wait."""

    def __init__(
        self,
        machine: NodeMachine[State],
        urls: Mapping[str, str] | None = None,
        security: Security | None = None,
        folder: Path | None = None,
        *,
        clock: Callable[[], float] = PROCESS_CLOCK.now,
    ) -> None:
        super().__init__(machine, urls, security, folder, clock=clock)
        self._planning = machine.planning(lambda: self.agent.state)

    @property
    def planner(self) -> Planner:
        """Plans over the node's own streams and links, with what is known now."""
        return self._planning()

    def observe(
        self,
        rates: Mapping[str, float],
        costs: Mapping[str, float],
        now: float,
        *,
        scale: float = 1.0,
        tuple_bytes: Mapping[str, float] | None = None,
        state_bytes: Mapping[str, float] | None = None,
    ) -> None:
        """Rates (tuples/s) at the node's streams and links, costs (CPU-seconds) of its operators.

        `scale` is the capacity the node turns out to have, unless its costs say so already. `tuple_bytes` are by
        producer, `state_bytes` of a tuple that an operator holds.
        """
        sizes = dict(tuple_bytes or {}), dict(state_bytes or {})
        self.agent.observe(rates, NodeMeasures(dict(costs), {}, scale, *sizes), now)

    def observe_results(self, latencies: Mapping[str, float], target_seconds: float, depth: int, now: float) -> None:
        """Mean latency (seconds, from the first arrival) of a batch's results at the node's outputs.

        `target_seconds` is the end-to-end target, `depth` the number of queries on the longest path to them.
        """
        self.agent.observe_results(latencies, target_seconds, depth, now)

    def share_factor(self, operators: Collection[str], now: float) -> float:
        """What is left of its share of the target for a query with these operators, in (0, 1]."""
        return self.agent.share_factor(operators, now)


def make_control_plane(
    kind: str,
    network: Network,
    node: str,
    security: Security,
    urls: Mapping[str, str],
    state_dir: Path,
    options: JobOptions | None = None,
) -> ControlPlane[Any]:
    """The control plane of one node. `urls` (agent name to address) go before those of the network file.

    The planner is that of a node alone; under a coordinator it is the coordinator's, and D-FIT has its own.
    """
    asked = options or JobOptions()
    check_plane(kind, network, asked)
    machine: NodeMachine[Any]
    if kind == "alone":
        machine = Alone(network, node, asked)
    elif kind == "dfit":
        machine = DFit(ClusterTopology(network, asked.epsilon, asked.headroom), node)
    elif kind == "coordinator":
        machine = CoordinatedNode(network, node, asked.headroom)
    else:
        raise InputError(f"no control plane is called {kind!r}", hint=suggestion(kind, KINDS))
    return ControlPlane(machine, _addresses(network, urls), security, state_dir)


def check_plane(kind: str, network: Network, options: JobOptions) -> None:
    """Refuse a planner, an objective or plans that a control plane cannot have for this network."""
    planner, objective = options.planner, options.objective
    if options.workload is not None and kind != "coordinator":
        raise InputError(
            "--workload: a node also plans for its links, and nobody has seen their rates",
            hint="Use --control coordinator, which plans for the streams, or leave it out",
        )
    if kind != "dfit":
        check_choice(planner or "exact", objective, options.workload)
        if kind == "coordinator" and options.plans == "advance":
            check_advance(Program(network), objective)
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
    options: JobOptions | None = None,
    shapes: Mapping[str, WindowShape] | None = None,
) -> Plane[CoordinatorState]:
    """The coordinator of a network; `urls` of its nodes go before those of the network file.

    `shapes` are the windows of drop locations that go by windows.
    """
    asked = options or JobOptions()
    check_plane("coordinator", network, asked)
    planner, lazy = asked.planner or "exact", asked.plans == "lazy"
    machine = Coordinator(
        *(network, planner, asked.epsilon, asked.headroom, asked.objective, asked.workload, lazy), shapes=shapes or {}
    )
    return Plane(machine, _addresses(network, urls), security, state_dir)


def _addresses(network: Network, urls: Mapping[str, str]) -> dict[str, str]:
    return {**{name: entry.url for name, entry in network.nodes.items() if entry.url is not None}, **urls}
