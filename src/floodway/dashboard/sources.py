"""Where the page gets its jobs from: folders that jobs write (status, ledger, batches, network), and agents over HTTP.

A `Reading` is what is known of one job now: its status, its network if it left one, and its account. A folder that
holds `nodes/NAME/` is one network whose nodes are processes of their own: their statuses and ledgers are put together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from floodway.agent.loop.run_files import NETWORK, node_folders, saved_status
from floodway.agent.watch.followed import Followed
from floodway.agent.watch.statuses import merged, normal
from floodway.errors import FloodwayError, InputError
from floodway.job.fold import Counts, Fold
from floodway.job.latencies import Latencies
from floodway.job.ledger_tail import LEDGER
from floodway.job.shed_state import ShedFiles
from floodway.job.timeline import Timeline
from floodway.network.file import load_network
from floodway.network.model import Network


@dataclass(frozen=True, slots=True)
class Reading:
    """One job as it is now. `account` is None where no ledger can be read; `problem` says why there is no status,
    `timeline` has its counts over time: the ledger's, or what an agent was seen to count.

    `place` is the folder or address it was read from, `names` what it may be called, the shortest first and the last
    like no other's; `heard` is when each of its nodes last spoke (seconds since 1970); `notes` what is wrong besides.
    """

    name: str
    status: Mapping[str, Any]
    network: Network | None = None
    account: Fold | None = None
    timeline: Timeline[Counts] | None = None
    problem: str | None = None
    latencies: Latencies = field(default_factory=Latencies)
    place: str = ""
    names: tuple[str, ...] = ()
    heard: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """What the page reads from, and where a mode is asked for."""

    def read(self) -> Sequence[Reading]:
        """All jobs as they are now, each with a name of its own."""

    def switch(self, reading: Reading, mode: str) -> None:
        """Ask the job that was read to switch; reads nothing."""


class StateSource:
    """Jobs by their folders: that of a run, of a network of processes, of a shed, or one that holds such folders."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        for folder in self._folders:
            if not folder.is_dir():
                raise InputError(
                    f"{folder} is not a folder", hint="Give the folder that `floodway run --state` was given"
                )
        self._followed: dict[Path, Followed] = {}
        self._networks: dict[Path, tuple[int, Network | None, str]] = {}

    def read(self) -> list[Reading]:
        """All jobs in the folders; one that starts later appears when it does."""
        return named([self._job(folder) for folder in self._jobs()])

    def switch(self, reading: Reading, mode: str) -> None:
        """Write the wish where the job looks for it: in its folder, and in every node's."""
        folder = Path(reading.place)
        for target in node_folders(folder) or [folder]:
            ShedFiles(target).write_mode(mode)

    def _jobs(self) -> list[Path]:
        found: dict[Path, None] = {}
        for given in self._folders:
            inside = [path for path in sorted(given.iterdir()) if _is_job(path)] if given.is_dir() else []
            for folder in [given] if _is_job(given) or not inside else inside:
                found[folder.resolve()] = None
        return list(found)

    def _job(self, folder: Path) -> Reading:
        nodes = node_folders(folder)
        told = {path: normal(saved_status(path)) for path in nodes or [folder]}
        statuses = {path: status for path, status in told.items() if status}
        status = merged(list(statuses.values()))
        followed = self._followed.setdefault(folder, Followed())
        followed.advance(nodes or [folder])
        network, note = self._network(folder)
        heard = {path.name: one["time_us"] / 1e6 for path, one in statuses.items() if "time_us" in one}
        own = None if nodes else status.get("name")
        known = str(own or (network.name if network else folder.name))
        return Reading(
            name=known,
            status=status,
            network=network,
            account=followed.account,
            timeline=followed.account.timeline if followed.account else None,
            problem=None if status or followed.account else "nothing written yet",
            latencies=followed.latencies,
            place=str(folder),
            names=(known, *(f"{known}, {shown}" for shown in (folder.name, "/".join(folder.parts[-2:]), folder))),
            heard=heard if nodes else {},
            notes=(note,) if note else (),
        )

    def _network(self, folder: Path) -> tuple[Network | None, str]:
        path = folder / NETWORK
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        known = self._networks.get(folder)
        if known is None or known[0] != changed:
            try:
                known = (changed, load_network(path) if changed else None, "")
            except FloodwayError as error:  # no picture, then, but not without a word
                known = (changed, None, f"{NETWORK} cannot be read, so there is no picture: {error.message}"[:300])
            self._networks[folder] = known
        return known[1], known[2]


class Sources:
    """Several sources as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._owners: dict[str, Source] = {}

    def read(self) -> list[Reading]:
        """Everything known to any of them."""
        found = [(source, reading) for source in self._sources for reading in source.read()]
        self._owners = {reading.place: source for source, reading in found}
        return named([reading for _, reading in found])

    def switch(self, reading: Reading, mode: str) -> None:
        """Ask the source that it was read from."""
        self._owners[reading.place].switch(reading, mode)


def named(readings: Sequence[Reading]) -> list[Reading]:
    """Every reading under the shortest of its names that no other bears: a switch must never hit another job.

    >>> two = [Reading("a", {}, names=("a", "a, x")), Reading("a", {}, names=("a", "a, y")), Reading("b", {})]
    >>> [reading.name for reading in named(two)]
    ['a, x', 'a, y', 'b']
    """
    choices = [reading.names or (reading.name,) for reading in readings]
    depth = [0] * len(readings)
    while True:
        names = [options[level] for options, level in zip(choices, depth, strict=True)]
        borne = Counter(names)
        alike = [i for i, name in enumerate(names) if borne[name] > 1 and depth[i] + 1 < len(choices[i])]
        if not alike:
            return [replace(reading, name=name) for reading, name in zip(readings, names, strict=True)]
        for i in alike:
            depth[i] += 1


def _is_job(folder: Path) -> bool:
    return (folder / "status.json").exists() or (folder / LEDGER).exists() or (folder / "nodes").is_dir()
