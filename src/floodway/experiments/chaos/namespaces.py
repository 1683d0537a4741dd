"""Namespaces of Linux: a file system that is read-only, or a network of its own, for one process and its children.

They need root, or a kernel that gives users namespaces of their own; where they cannot be had, `missing` says why.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

_NEWNS = 0x0002_0000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x4_0000


def make_read_only(folder: Path) -> None:
    """From now on this process, and nobody else, finds a folder on a read-only file system."""
    _call("unshare", _NEWNS)
    _mount(None, "/", _REC | _PRIVATE)  # or all others would see it as well
    _mount(str(folder), str(folder), _BIND | _REC)
    _mount(str(folder), str(folder), _BIND | _REMOUNT | _RDONLY)


@cache
def missing() -> str | None:
    """Why there are no mount namespaces here; None if there are."""
    child = os.fork()
    if child == 0:
        try:
            _call("unshare", _NEWNS)
            _mount(None, "/", _REC | _PRIVATE)
        except OSError as error:
            os._exit(error.errno or 1)
        except BaseException:
            os._exit(255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else f"no namespace of its own ({os.strerror(code)}); it needs root"


def _mount(source: str | None, target: str, flags: int) -> None:
    _call("mount", None if source is None else os.fsencode(source), os.fsencode(target), None, flags, None)


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
