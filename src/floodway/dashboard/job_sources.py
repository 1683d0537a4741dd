"""Where the page gets its jobs from: the state that jobs write, and agents over HTTP (`agents.py`).

A `Reading` is what is known of one job now: its status, its figures over time, its network if it left one. A folder
that holds `nodes/NAME/` is one network whose nodes are processes of their own: statuses and ledgers are put together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from floodway.agent.loop.run_files import NETWORK
from floodway.errors import FloodwayError, InputError
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.timeline import Timeline
from floodway.job.places import JobPlace, is_job, job_names
from floodway.job.status.figures import Figures, JobTail
from floodway.job.status.status import Status
from floodway.job.store.store import Store, join, local_folder, scheme_of
from floodway.network.file import load_network
from floodway.network.model import Network
from floodway.spark.session.stores import open_store


@dataclass(frozen=True, slots=True)
class Reading:
    """One job as it is now. `problem` says why there is no status, or none of now; `notes` what is wrong besides.

    `figures` are what is on record, None where no state can be read; `timeline` the counts over time: the ledger's, or
    what an agent was seen to count. `place` is the folder or address it was read from, `names` what it may be called,
    the shortest first and the last like no other's.
    """

    name: str
    status: Status | None = None
    network: Network | None = None
    figures: Figures | None = None
    timeline: Timeline[Counts] | None = None
    problem: str | None = None
    place: str = ""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def is_input(self, at: str) -> bool:
        """Whether tuples come into the job at this place."""
        return at in self.network.streams if self.network is not None else "->" not in at


class Source(Protocol):
    """What the page reads from, and where a mode is asked for."""

    def read(self) -> Sequence[Reading]:
        """All jobs as they are now, each with a name of its own."""

    def switch(self, reading: Reading, mode: str) -> None:
        """Ask the job that was read to switch; reads nothing."""


class StateSource:
    """Jobs by the places of their state: of a run, a network of processes, a shed, or one that holds several."""

    def __init__(self, places: Iterable[Path | str]) -> None:
        self._places = [str(place) for place in places]
        for place in self._places:
            if scheme_of(place) == "file" and not local_folder(place).is_dir():
                raise InputError(
                    f"{place} is not a folder", hint="Give the folder that `floodway run --state` was given"
                )
        self._stores: dict[str, Store] = {}
        self._tails: dict[str, JobTail] = {}
        self._networks: dict[Path, tuple[int, Network | None, str]] = {}

    def read(self) -> list[Reading]:
        """All jobs at the places; one that starts later appears when it does."""
        return named([self._job(place) for place in self._jobs()])

    def job(self, place: str) -> JobPlace:
        """The job at a place that was read."""
        return JobPlace.of(self._open(place))

    def switch(self, reading: Reading, mode: str) -> None:
        """Write the wish where the job looks for it."""
        self.job(reading.place).switch(mode)

    def _open(self, place: str) -> Store:
        if place not in self._stores:
            self._stores[place] = open_store(place)
        return self._stores[place]

    def _jobs(self) -> list[str]:
        found: dict[str, None] = {}
        for given in self._places:
            root = self._open(given)
            inside = [] if is_job(root) else [join(given, name) for name in job_names(root, self._open)]
            for place in inside or [given]:
                found[str(local_folder(place).resolve()) if scheme_of(place) == "file" else place] = None
        return list(found)

    def _job(self, place: str) -> Reading:
        job = self.job(place)
        network, note = (None, "") if job.folder is None else self._network(job.folder)
        tail = self._tails.setdefault(place, JobTail())
        try:
            status, problem = job.status(tail), None
        except FloodwayError as error:
            status, problem = None, error.message
        figures = tail.figures if tail.has_ledger else None
        own = status.name if status is not None else network.name if network is not None else job.name
        return Reading(
            name=own,
            status=status,
            network=network,
            figures=figures,
            timeline=figures.fold.timeline if figures else None,
            problem=problem or (None if status or figures else "nothing written yet"),
            place=place,
            names=(own, *(f"{own}, {shown}" for shown in (job.name, "/".join(place.split("/")[-2:]), place))),
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

    >>> two = [Reading("a", names=("a", "a, x")), Reading("a", names=("a", "a, y")), Reading("b")]
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


def unheard(reading: Reading) -> Status:
    """The status of a job that has written none, or none that can be read: what its ledger says."""
    blank = Status(reading.name, "run", "off", time=0.0)
    return blank if reading.figures is None else reading.figures.refreshed(blank)
