"""One process per state: by a lock of the operating system (`flock`), which goes with the process, or by a lease.

Two drivers with sheds of one name would write over each other's decisions, and a replayed batch would find others than
it ran with; two runs on one state folder would write the same checkpoints.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from floodway.errors import InputError
from floodway.job.store.lease import Lease, LeasedStore
from floodway.job.store.store import LocalStore, Store, make_folder

log = logging.getLogger(__name__)

_WRITER = "writer.lock"
_held: dict[str, Store] = {}
_lock = threading.Lock()


def take(path: Path, hint: str) -> IO[str]:
    """Lock this file until it is closed; InputError that names the process which has it."""
    make_folder(path.parent)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise InputError(f"{path.parent} is in use by process {holder}", hint=hint) from None
    except OSError as error:
        # Storage without locks is no reason to refuse a job that runs alone on it.
        log.warning("%s cannot be locked (%s): see that only one process uses it", path.parent, error)
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def hold(store: Store) -> Store:
    """Hold the state of a job for the rest of this process, and return the store to write it through; twice is once."""
    with _lock:
        if store.uri not in _held:
            _held[store.uri] = _hold_folder(store) if isinstance(store, LocalStore) else _hold_lease(store)
        return _held[store.uri]


def _hold_folder(store: LocalStore) -> Store:
    hint = "Stop that job first, or give this one another name or place for its state"
    atexit.register(take(store.folder.resolve() / _WRITER, hint).close)
    return store


def _hold_lease(store: Store) -> Store:
    lease = Lease(store)
    threading.Thread(target=lease.renew_until_released, name="floodway-lease", daemon=True).start()
    atexit.register(_release, lease)
    return LeasedStore(store, lease)


def _release(lease: Lease) -> None:
    # The store may be gone with the JVM by now; the next process then waits until the lease expires.
    with suppress(Exception):
        lease.release()
