"""Finding a job by its name or its place: the one way to name it, for every command and for the page.

A *place* is the folder of a job's state. A *name* is that of a shed of this user, whose state lies under `state_root`,
or of a job that was started elsewhere and noted its place there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodway.errors import InputError
from floodway.job.ledger.ledger_tail import LEDGER
from floodway.job.shed_state import state_root
from floodway.job.status.status import STATUS, Status, merge_nodes, read_status
from floodway.job.status.tail import JobTail
from floodway.job.store.state_files import write_mode
from floodway.job.store.store import LocalStore, scheme_of

NODES = "nodes"
NOTES = ".places"


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A job's folder, and those of its nodes where they are processes of their own."""

    name: str
    folder: Path
    nodes: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, name: str | None = None) -> JobPlace:
        """The job in this folder."""
        inside = folder / NODES
        nodes = sorted(path for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []
        return cls(name or folder.name, folder, {path.name: path for path in nodes})

    @property
    def folders(self) -> list[Path]:
        """Where its ledgers and batches are."""
        return list(self.nodes.values()) or [self.folder]

    @property
    def stores(self) -> list[LocalStore]:
        """The same as stores."""
        return [LocalStore(folder) for folder in self.folders]

    def statuses(self) -> dict[str, Status]:
        """The latest status of every node that has one; of a job in one process, its own."""
        places = self.nodes or {self.name: self.folder}
        found = {name: read_status(LocalStore(path)) for name, path in places.items()}
        return {name: status for name, status in found.items() if status is not None}

    def status(self, tail: JobTail) -> Status | None:
        """The latest status of the whole, with the figures on record; None before the first. `tail` is this job's."""
        found = self.statuses()
        status = merge_nodes(found) if self.nodes else next(iter(found.values()), None)
        tail.advance(self.stores)
        return status if status is None or not tail.has_ledger else tail.figures.refreshed(status)

    def switch(self, mode: str) -> None:
        """Leave the operator's wish where the job looks for it: in its folder, or in every node's."""
        for store in self.stores:
            write_mode(store, mode)


def is_job(folder: Path) -> bool:
    """Whether a job has written its state into this folder."""
    return any((folder / name).exists() for name in (STATUS, LEDGER, NODES))


def find_job(text: str, under: Path | None = None) -> JobPlace:
    """The job of this name or at this place; InputError with the names that are known if there is none.

    `under` is the job's own folder, or one that holds a folder of that name; of a network whose nodes are processes the
    name of a node finds that one, any other name all of them.
    """
    if under is not None and is_job(under):
        found = JobPlace.of(under, text)
        return JobPlace(text, found.nodes[text]) if text in found.nodes else found
    place = local_place(text)
    if place is not None and is_job(place):
        return JobPlace.of(place)
    root = under or state_root()
    if place is None or text == place.name:
        noted = LocalStore(root / NOTES).read(text)
        for folder in (root / text, *([] if noted is None else [Path(noted.decode())])):
            if folder.is_dir():
                return JobPlace.of(folder, text)
    known = sorted(path.name for path in root.iterdir() if is_job(path)) if root.is_dir() else []
    known += [name for name in LocalStore(root / NOTES).names() if name not in known]
    raise InputError(
        f"no job {text!r}" + (f" under {root}" if place is None or not place.is_dir() else ": the folder holds none"),
        hint=f"Known there: {', '.join(known)}" if known else "Start it first, or give the folder of its state",
    )


def job_folder(text: str) -> Path:
    """The folder of a job by its name or place, or a folder that holds jobs."""
    place = local_place(text)
    return place if place is not None and place.is_dir() else find_job(text).folder


def local_place(text: str) -> Path | None:
    """The folder that a text names; None if it can only be a name."""
    if scheme_of(text) != "file":
        return None
    path = Path(text.removeprefix("file://"))
    return path if "/" in text or path.is_dir() else None


def note_place(name: str, folder: Path) -> None:
    """Let a job that was started in this folder be found by its name."""
    LocalStore(state_root() / NOTES).write(name, str(folder.absolute()).encode(), durable=False)
