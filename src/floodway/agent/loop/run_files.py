"""What a run leaves beside its ledger for those who look at it later: its network, its batches and its report.

ROOT/network.json    the network that runs, as a network file (JSON is YAML)
ROOT/batches/        figures of its batches, latencies among them (job/status/batches.py)
ROOT/report.json     the figures at the end, as `floodway run --json` prints them

The ledger alone tells what was offered, kept and dropped; these add what it cannot: latency, and where in the network
a place is. A run that was killed has no report, and everything else.

One run a folder: a state folder belongs to one network, and to one process at a time.

Two runs on one folder would write the same checkpoints and the same ledger; a run of another network would find
positions of logs that are not its own. Both are refused before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from floodway.errors import FloodwayError, InputError
from floodway.job.ledger.ledger import Ledger
from floodway.job.places import note_place
from floodway.job.store.lease import take
from floodway.job.store.store import LocalStore, write_atomically
from floodway.json_text import load_json
from floodway.network.file import load_network, network_to_json
from floodway.network.model import Network

NETWORK, REPORT = "network.json", "report.json"


def save_network(root: Path, network: Network) -> None:
    """Leave the network beside the ledger, so that the page and the report can draw it."""
    write_atomically(root / NETWORK, network_to_json(network))


def saved_network(root: Path) -> Network | None:
    """The network that a run left; None if it left none that can be read."""
    path = root / NETWORK
    if not path.is_file():
        return None
    try:
        return load_network(path)
    except FloodwayError:
        return None


def save_report(root: Path, body: Mapping[str, Any]) -> None:
    """Leave the figures of a finished run."""
    write_atomically(root / REPORT, json.dumps(body))


def saved_report(root: Path) -> dict[str, Any]:
    """The figures a finished run left; empty if there are none."""
    return _object(root / REPORT)


def node_folders(root: Path) -> list[Path]:
    """The folders of a network's nodes that ran as processes of their own; none for a run in one process."""
    inside = root / "nodes"
    return sorted(path for path in inside.iterdir() if path.is_dir()) if inside.is_dir() else []


def _object(path: Path) -> dict[str, Any]:
    try:
        body = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


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
