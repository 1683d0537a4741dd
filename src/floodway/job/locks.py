"""One process a folder, by a lock of the operating system (`flock`): it goes with the process, however that ends.

Two drivers with sheds of one name would write over each other's decisions, and a replayed batch would find others than
it ran with; two runs on one state folder would write the same checkpoints.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
from pathlib import Path
from threading import Lock
from typing import IO

from floodway.errors import InputError
from floodway.job.store import make_folder

log = logging.getLogger(__name__)

_WRITER = "writer.lock"
_held: dict[Path, IO[str]] = {}
_lock = Lock()


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


def hold(folder: Path) -> None:
    """Hold the folder of a shed for the rest of this process; twice is once."""
    path = folder.resolve() / _WRITER
    with _lock:
        if path not in _held:
            file = _held[path] = take(path, "Stop that job first, or give this one another name or state folder")
            atexit.register(file.close)
