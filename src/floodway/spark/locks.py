"""One process a folder: whoever writes a control table holds its folder until the process ends.

Two drivers with sheds of one name would write over each other's decisions, and a replayed batch would find others than
it ran with. The lock is the operating system's (`flock`), so it goes with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from threading import Lock
from typing import IO

from floodway.errors import InputError

log = logging.getLogger(__name__)

NAME = "writer.lock"
_held: dict[Path, IO[str]] = {}
_lock = Lock()


def hold(folder: Path) -> None:
    """Hold the folder for this process; InputError that names the process which has it. Twice is once."""
    path = folder.resolve() / NAME
    with _lock:
        if path in _held:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise InputError(
                f"{folder} is in use by process {holder}",
                hint="Stop that job first, or give this one another name or state folder",
            ) from None
        except OSError as error:
            # Storage without locks is no reason to refuse a job that runs alone on it.
            log.warning("%s cannot be locked (%s): see that only one job uses it", folder, error)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        _held[path] = file
