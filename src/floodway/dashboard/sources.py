"""Where the page's figures come from: folders that jobs write, or agents that are asked over HTTP.

A *reading* is what is known of one job now: its status, its network if it left one, and its account. A folder that
holds `nodes/NAME/` is one network whose nodes are processes of their own: their statuses and ledgers are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from floodway.agent.account import Account, LedgerTail
from floodway.agent.latencies import Latencies, LatencyTail
from floodway.agent.run_files import BATCHES, node_folders, saved_network, saved_status
from floodway.agent.wire.client import Client, PeerError
from floodway.agent.wire.messages import Mode, encode
from floodway.agent.wire.signing import Security
from floodway.errors import FloodwayError, InputError
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.shed_state import ShedFiles, checked_mode

STATUS_PATHS = ("/v1/node", "/v1/status")
LEDGER = "ledger.jsonl"
SENDER = "page"


@dataclass(frozen=True, slots=True)
class Reading:
    """One job as it is now. `account` is None where no ledger can be read; `problem` says why there is no status."""

    name: str
    status: Mapping[str, Any]
    network: Network | None = None
    account: Account | None = None
    problem: str | None = None
    latencies: Latencies = field(default_factory=Latencies)


class Source(Protocol):
    """What the page reads from, and where a mode is asked for."""

    def read(self) -> Sequence[Reading]:
        """All jobs as they are now."""

    def set_mode(self, name: str, mode: str) -> None:
        """Ask the job of this name to switch; InputError if there is none."""


class StateSource:
    """Jobs by their folders: that of a run, of a network of processes, of a shed, or one that holds such folders."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        for folder in self._folders:
            if not folder.is_dir():
                raise InputError(
                    f"{folder} is not a folder", hint="Give the folder that `floodway run --state` was given"
                )
        self._accounts: dict[Path, tuple[Account, dict[Path, LedgerTail]]] = {}
        self._latencies: dict[Path, tuple[Latencies, dict[Path, LatencyTail]]] = {}
        self._networks: dict[Path, tuple[int, Network | None]] = {}

    def read(self) -> list[Reading]:
        """All jobs in the folders; one that starts later appears when it does."""
        return [self._job(folder, name) for folder, name in self._jobs().values()]

    def set_mode(self, name: str, mode: str) -> None:
        """Write the wish where the job looks for it: in its folder, and in every node's."""
        jobs = self._jobs()
        if name not in jobs:
            raise InputError(f"no job is called {name!r}", hint=f"Known: {', '.join(jobs) or 'none yet'}")
        folder = jobs[name][0]
        for target in node_folders(folder) or [folder]:
            ShedFiles(target).write_mode(mode)

    def _jobs(self) -> dict[str, tuple[Path, str]]:
        found: dict[str, tuple[Path, str]] = {}
        for given in self._folders:
            for folder in job_folders(given):
                network = self._network(folder)
                known = saved_status(folder).get("name") or (network.name if network else None)
                name = str(known or folder.resolve().name)
                if name in found:
                    name = f"{name}, {folder.name}"
                found[name] = (folder, name)
        return found

    def _job(self, folder: Path, name: str) -> Reading:
        nodes = node_folders(folder)
        statuses = [normal(saved_status(path)) for path in nodes or [folder]]
        status = merged([status for status in statuses if status])
        account = self._account(folder, [path / LEDGER for path in nodes or [folder]])
        latencies = self._measured(folder, [path / BATCHES for path in nodes or [folder]])
        problem = None if status or account else "nothing written yet"
        return Reading(name, status, self._network(folder), account, problem, latencies)

    def _account(self, folder: Path, ledgers: Iterable[Path]) -> Account | None:
        account, tails = self._accounts.setdefault(folder, (Account(), {}))
        for path in ledgers:
            if path not in tails and path.exists():
                tails[path] = LedgerTail(path, account)
        for tail in tails.values():
            tail.advance()
        return account if tails else None

    def _measured(self, folder: Path, files: Iterable[Path]) -> Latencies:
        latencies, tails = self._latencies.setdefault(folder, (Latencies(), {}))
        for path in files:
            tails.setdefault(path, LatencyTail(path, latencies)).advance()
        return latencies

    def _network(self, folder: Path) -> Network | None:
        path = folder / "network.json"
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        known = self._networks.get(folder)
        if known is None or known[0] != changed:
            self._networks[folder] = known = (changed, saved_network(folder))
        return known[1]


class UrlSource:
    """Jobs by the addresses of their agents."""

    def __init__(self, urls: Iterable[str], security: Security | None = None) -> None:
        self._clients = {url: Client(url, security) for url in urls}
        self._names: dict[str, str] = {}
        self._networks_of: dict[str, str] = {}
        self._networks: dict[str, Network | None] = {}

    def read(self) -> list[Reading]:
        """Every agent's status; one that is silent stays on the page and says so."""
        return [self._ask(url, client) for url, client in self._clients.items()]

    def set_mode(self, name: str, mode: str) -> None:
        """Ask the agent itself."""
        url = next((url for url, known in self._names.items() if known == name), None)
        if url is None:
            raise InputError(f"no agent is called {name!r}", hint=f"Known: {', '.join(self._names.values())}")
        body = Mode(network=self._networks_of[url], sender=SENDER, receiver=name, mode=checked_mode(mode))
        self._clients[url].post_bytes(Mode.path, encode(body))

    def _ask(self, url: str, client: Client) -> Reading:
        problem = ""
        for path in STATUS_PATHS:
            try:
                status = client.get_json(path)
            except PeerError as error:
                problem = str(error)
                continue
            if isinstance(status, dict):
                name = str(status.get("node") or status.get("name") or url)
                self._names[url] = name
                self._networks_of[url] = str(status.get("name", "")).removesuffix(f": {name}")
                return Reading(name, normal(status), self._network(url, status))
        return Reading(self._names.get(url, url), {}, problem=problem)

    def _network(self, url: str, status: Mapping[str, Any]) -> Network | None:
        if url not in self._networks and isinstance(status.get("network"), str):
            try:
                self._networks[url] = parse_network(status["network"], source=url)
            except FloodwayError:
                self._networks[url] = None
        return self._networks.get(url)


class Sources:
    """Several sources as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)

    def read(self) -> list[Reading]:
        """Everything known to any of them."""
        return [reading for source in self._sources for reading in source.read()]

    def set_mode(self, name: str, mode: str) -> None:
        """Ask the source that knows the job."""
        for source in self._sources:
            if any(reading.name == name for reading in source.read()):
                source.set_mode(name, mode)
                return
        raise InputError(f"no job is called {name!r}", hint="Reload the page to see the jobs there are")


def normal(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status with the fields of a run's: participants tell their time in seconds and their load as one number.

    >>> normal({"name": "X", "time": 2.0, "load": 0.5, "unreachable": {"Y": 1.0}})
    {'name': 'X', 'load': {'X': 0.5}, 'time_us': 2000000, 'cut_off': {'Y': 1.0}}
    """
    found = dict(status)
    if isinstance(found.get("time"), (int, float)) and "time_us" not in found:
        found["time_us"] = int(found.pop("time") * 1e6)
    if isinstance(found.get("load"), (int, float)):
        found["load"] = {str(found.get("name", "")): found["load"]}
    if isinstance(found.get("unreachable"), Mapping):  # partners that do not answer, not a target
        found["cut_off"] = found.pop("unreachable")
    return found


def merged(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statuses of a network's nodes as one: tables joined, the latest time, the worst latency, modes that differ told.

    >>> merged([{"mode": "off", "load": {"A": 1.0}}, {"mode": "enforce", "load": {"B": 0.5}}])
    {'mode': 'enforce, off', 'load': {'A': 1.0, 'B': 0.5}}
    """
    if len(statuses) <= 1:
        return dict(statuses[0]) if statuses else {}
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for status in statuses for key in status):
        values = [status[key] for status in statuses if status.get(key) is not None]
        if not values:
            found[key] = None
        elif key == "mode":
            found[key] = ", ".join(sorted(set(values)))
        elif all(isinstance(value, Mapping) for value in values):
            found[key] = {name: item for value in values for name, item in value.items()}
        elif all(isinstance(value, list) for value in values):
            found[key] = [item for value in values for item in value]
        elif key in ("scale", "loss_floor"):
            found[key] = min(values)
        elif all(isinstance(value, bool) for value in values):
            found[key] = any(values)
        elif all(isinstance(value, (int, float)) for value in values):
            found[key] = max(values)
        else:
            found[key] = values[0]
    return found


def job_folders(given: Path) -> list[Path]:
    """The folders of jobs that a folder stands for: itself, or those in it."""
    inside = [path for path in sorted(given.iterdir()) if _is_job(path)]
    return [given] if _is_job(given) or not inside else inside


def _is_job(folder: Path) -> bool:
    return (folder / "status.json").exists() or (folder / LEDGER).exists() or (folder / "nodes").is_dir()
