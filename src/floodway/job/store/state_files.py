"""Small files of a running job that others read or leave while it runs: replaced whole, never written in place.

`mode.json` in a job's folder is the operator's wish, {"mode": "observe" | "enforce" | "off"}: written by `floodway set`
and by the page, read by the job; it outlives restarts and wins over what the job was started with. A shed and a network
have the same file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from pydantic import TypeAdapter

from floodway.errors import InputError
from floodway.job.decision import Mode
from floodway.job.store.store import LocalStore, Store
from floodway.json_text import load_json

MODE = "mode.json"
MODES: tuple[str, ...] = get_args(Mode)


def read_mode(store: Store) -> Mode | None:
    """The operator's wish; None if there is none, or none that can be understood."""
    try:
        body = load_json(store.read(MODE) or b"null")
    except ValueError:
        return None
    mode = body.get("mode") if isinstance(body, dict) else None
    return mode if mode in MODES else None


def write_mode(store: Store, mode: str) -> None:
    """Leave a wish for the running job."""
    store.write(MODE, json.dumps({"mode": checked_mode(mode)}).encode())


def checked_mode(mode: str) -> Mode:
    """Refuse what is no mode."""
    for known in get_args(Mode):
        if mode == known:
            return TypeAdapter[Mode](Mode).validate_python(known)
    raise InputError(f"mode {mode!r} is not known", hint=f"Choose one of {', '.join(MODES)}.")


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a small file so that a reader sees the old or the new one, never half.

    What is written many times a second and means nothing after a crash of the machine need not be `durable`.
    """
    LocalStore(path.parent).write(path.name, f"{text}\n".encode(), durable=durable)
