"""One run a folder: a state folder belongs to one network, and to one process at a time.

Two runs on one folder would write the same checkpoints and the same ledger; a run of another network would find
positions of logs that are not its own. Both are refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from floodway.agent.loop.run_files import node_folders, saved_network
from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import note_place
from floodway.job.store.locks import take
from floodway.job.store.store import LocalStore
from floodway.network.model import Network

LOCK = "run.lock"
Kind = Literal["run", "up"]


@contextmanager
def claimed(root: Path, network: Network, kind: Kind = "run") -> Iterator[None]:
    """Hold the folder for a run of this network; InputError if it is taken, or holds another's files.

    The lock goes with the process, however that ends.
    """
    check_owner(root, network)
    other: Kind = "up" if node_folders(root) else "run"
    if other != kind and (other == "up" or Ledger(LocalStore(root)).exists()):
        raise InputError(f"{root} holds a run of `floodway {other}`", hint="Give another --state folder")
    with locked(root):
        note_place(network.name, str(root.absolute()))
        yield


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the folder, whatever it is for; InputError that names the process which has it."""
    with take(root / LOCK, "Wait for it or stop it, or give another --state folder"):
        yield


def check_owner(root: Path, network: Network) -> None:
    """Refuse a folder in which another network has run."""
    before = saved_network(root)
    if before is not None and before.name != network.name:
        raise InputError(
            f"{root} holds a run of the network {before.name!r}, not of {network.name!r}",
            hint="Give the folder or the network file that belongs to it",
        )
