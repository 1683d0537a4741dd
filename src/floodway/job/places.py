"""Where a job's state lies, what is in each file of a shed, and how a job is found by its name or its place.

A *place* is the folder or URI of a job's state. A *name* is that of a job of this user: its state lies under
`state_root`, or the job has noted on this machine where it lies.

A shed has one folder, ROOT/NAME/, at a place that the driver reaches on whatever machine it is started. On Spark
Connect executors read `control.json` there. How the root is found in a session: `spark/session/stores.py`. Without one:
`FLOODWAY_STATE`, else `$XDG_STATE_HOME/floodway`, else `~/.local/state/floodway`.

- `control.json`   the control table (`spark/shed/control_table.py`); written by the running job only
- `mode.json`      the operator's wish (`decision.py`), read by the job after every micro-batch
- `status.json`    the fields of `Status` (`status/status.py`), replaced after every micro-batch
- `batches/`       latencies, rates, keep and reason of every micro-batch (`status/batches.py`)
- `ledger/`        one line a micro-batch (`ledger/ledger.py`)
- `checkpoints.json`  where its queries have their checkpoints, for `floodway audit` (`spark/shed/checkpoints.py`)
- `dropped/`       with `side_output=`: a sample of dropped tuples, {"query", "batch", "tuple"} a line, the newest kept
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from floodway.errors import FloodwayError, InputError
from floodway.job.decision import Mode, read_mode, write_mode
from floodway.job.ledger.ledger import LEDGER
from floodway.job.status.figures import JobTail
from floodway.job.status.status import STATUS, Status, merge_nodes, read_status, write_status
from floodway.job.store.store import LocalStore, Store, checked_place, join, local_folder, scheme_of

log = logging.getLogger(__name__)

NODES = "nodes"
NOTES = ".places"

OpenStore = Callable[[str], Store]
"""Opens the store at a folder or URI."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ShedFiles:
    """The state of one shed, on a store or in a folder."""

    def __init__(self, place: Store | Path) -> None:
        self.store: Store = LocalStore(place) if isinstance(place, Path) else place

    @property
    def folder(self) -> Path:
        """The folder of a state on a disk; InputError elsewhere."""
        if not isinstance(self.store, LocalStore):
            raise InputError(f"{self.store.uri} is not a folder", hint="This needs a state on a disk of this machine")
        return self.store.folder

    @property
    def control_uri(self) -> str:
        """The control table."""
        return f"{self.store.uri}/control.json"

    def key(self, name: str) -> str:
        """Tells a shed from others of its name: one name may be in use at several places."""
        return f"{name}.{crc32(self.store.uri.encode()):08x}"

    def read_mode(self) -> Mode | None:
        """The operator's wish; None if there is none. StoreError if there is one that cannot be understood."""
        return read_mode(self.store)

    def read_status(self) -> Status | None:
        """The last status; None if there is none, or one of another version."""
        try:
            return read_status(self.store)
        except InputError:
            return None

    def write_status(self, status: Status) -> None:
        """Replace the status."""
        write_status(self.store, status)


def checked_name(name: str) -> str:
    """Refuse what cannot be the name of a folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"shed name {name!r} is not usable as a folder",
            hint="Use letters, digits, '.', '_' and '-', at most 100.",
        )
    return name


def state_root() -> str:
    """The folder or URI that holds one folder for every shed of this user."""
    return os.environ.get("FLOODWAY_STATE") or str(home_root())


def home_root() -> Path:
    """The folder on this machine that holds those whose place nobody has chosen."""
    given = os.environ.get("FLOODWAY_STATE")
    if given and scheme_of(given) == "file":
        return local_folder(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "floodway"


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
