"""Finding a job by its name or its place: the one way to name it, for every command and for the page.

A *place* is the folder or URI of a job's state. A *name* is that of a job of this user: its state lies under
`state_root`, or the job has noted on this machine where it lies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodway.errors import FloodwayError, InputError
from floodway.job.ledger.ledger_tail import LEDGER
from floodway.job.shed_state import home_root, state_root
from floodway.job.status.figures import JobTail
from floodway.job.status.status import STATUS, Status, merge_nodes, read_status
from floodway.job.store.state_files import write_mode
from floodway.job.store.store import LocalStore, Store, checked_place, join, local_folder, scheme_of

log = logging.getLogger(__name__)

NODES = "nodes"
NOTES = ".places"

OpenStore = Callable[[str], Store]
"""Opens the store at a folder or URI."""


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A job's state, and that of its nodes where they are processes of their own (on a disk only)."""

    name: str
    store: Store
    nodes: Mapping[str, LocalStore] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Store | Path, name: str | None = None) -> JobPlace:
        """The job in this folder or store."""
        store = LocalStore(place) if isinstance(place, Path) else place
        nodes: dict[str, LocalStore] = {}
        if isinstance(store, LocalStore):
            inside = store.folder / NODES
            found = sorted(path for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []
            nodes = {path.name: LocalStore(path) for path in found}
        return cls(name or store.uri.rpartition("/")[2], store, nodes)

    @property
    def folder(self) -> Path | None:
        """The folder of a state on a disk; None elsewhere."""
        return self.store.folder if isinstance(self.store, LocalStore) else None

    @property
    def place(self) -> str:
        """The folder or URI, as a user writes it."""
        return str(self.folder or self.store.uri)

    @property
    def stores(self) -> list[Store]:
        """Its own state, or that of every node."""
        return list(self.nodes.values()) or [self.store]

    def records(self) -> list[Store]:
        """Where its ledgers and batches are: those of a participant's fragments move with the fragments."""
        members = [one.participant for one in self.statuses().values() if one.participant is not None]
        moving = [part.place for member in members for part in member.fragments.values() if part.place]
        return [*self.stores, *(LocalStore(Path(place)) for place in moving)]

    def statuses(self) -> dict[str, Status]:
        """The latest status of every node that has one; of a job in one process, its own."""
        places: Mapping[str, Store] = self.nodes or {self.name: self.store}
        found = {name: read_status(store) for name, store in places.items()}
        return {name: status for name, status in found.items() if status is not None}

    def status(self, tail: JobTail) -> Status | None:
        """The latest status of the whole, with the figures on record; None before the first. `tail` is this job's."""
        found = self.statuses()
        status = merge_nodes(found) if self.nodes else next(iter(found.values()), None)
        tail.advance(self.records())
        return status if status is None or not tail.has_ledger else tail.figures.refreshed(status)

    def switch(self, mode: str) -> None:
        """Leave the operator's wish where the job looks for it: in its own state, or in every node's."""
        for store in self.stores:
            write_mode(store, mode)


def is_job(place: Store | Path) -> bool:
    """Whether a job has written its state there."""
    if isinstance(place, Path):
        return any((place / name).exists() for name in (STATUS, LEDGER, NODES))
    if isinstance(place, LocalStore):
        return is_job(place.folder)
    return place.modified(STATUS) is not None or bool(place.names(LEDGER))


def find_job(text: str, open_store: OpenStore, under: str | None = None) -> JobPlace:
    """The job of this name or at this place; InputError with the names that are known if there is none.

    `under` is the job's own folder, or one that holds a folder of that name; of a network whose nodes are processes the
    name of a node finds that one, any other name all of them.
    """
    if under is not None and is_job(own := open_store(under)):
        found = JobPlace.of(own, text)
        return JobPlace(text, found.nodes[text]) if text in found.nodes else found
    place = place_of(text)
    if place is not None and is_job(there := open_store(place)):
        return JobPlace.of(there)
    root = open_store(under or state_root())
    if place is None or text == Path(place).name:
        for candidate in (join(root.uri, text), noted_place(LocalStore(home_root() / NOTES), text)):
            if candidate is not None and _holds_any(store := open_store(candidate)):
                return JobPlace.of(store, text)
    looked = root if place is None or not _holds_any(open_store(place)) else open_store(place)
    known = sorted({*job_names(looked, open_store), *([] if under else LocalStore(home_root() / NOTES).names())})
    raise InputError(
        f"no job {text!r}" + (f" under {_shown(root)}" if looked is root else ": the folder holds none"),
        hint=f"Known there: {', '.join(known)}" if known else "Start it first, or give the place of its state",
    )


def job_names(root: Store, open_store: OpenStore) -> list[str]:
    """The names of the jobs that lie below a place."""
    return [name for name in root.folders() if is_job(open_store(join(root.uri, name)))]


def place_of(text: str) -> str | None:
    """The folder or URI that a text names; None if it can only be a name."""
    if scheme_of(text) != "file":
        return checked_place(text)
    path = local_folder(text)
    return str(path) if "/" in text or path.is_dir() else None


def note_place(name: str, place: str) -> None:
    """Let a job whose state lies elsewhere be found by its name on this machine; nothing depends on it."""
    if place == join(LocalStore(home_root()).uri, name):
        return
    try:
        LocalStore(home_root() / NOTES).write(name, place.encode(), durable=False)
    except (FloodwayError, ValueError) as error:  # a home that cannot be written, a name that is no file's
        log.debug("the place of %s is not noted: %s", name, error)


def noted_place(notes: Store, name: str) -> str | None:
    """Where a job of this name lies, as noted; None if there is no note, or none that can be understood."""
    try:
        found = (notes.read(name) or b"").decode()
        return found if found.isprintable() and found else None
    except ValueError:  # no text, or a name that is no file's
        return None


def _holds_any(store: Store) -> bool:
    """Whether there is anything: a job that was started and has not ended a batch has no status yet."""
    return store.folder.is_dir() if isinstance(store, LocalStore) else bool(store.names() or store.folders())


def _shown(store: Store) -> str:
    return str(store.folder) if isinstance(store, LocalStore) else store.uri
