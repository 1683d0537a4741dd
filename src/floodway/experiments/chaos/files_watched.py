"""Telling from outside what a job is doing, by the files that it writes: Linux's inotify, through the C library.

A phase of a micro-batch ends with a file: the cut with `offsets/N`, the sink with a segment, the commit with
`commits/N`. Whoever waits for that file and strikes then has hit the phase that follows, without a line of code in the
job for it.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_CREATE, _MOVED_TO, _CLOSE_WRITE, _MODIFY = 0x100, 0x80, 0x8, 0x2
_EVENT = struct.Struct("iIII")


class FilesWatched:
    """Folders that exist, watched from `add` on; `wait` returns when a name in one of them was made or written."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify is not there")
        self._folders: dict[int, Path] = {}

    def add(self, folder: Path) -> None:
        """Watch a folder; not what is in folders below it."""
        found = self._library.inotify_add_watch(
            self._descriptor, os.fsencode(folder), _CREATE | _MOVED_TO | _CLOSE_WRITE | _MODIFY
        )
        if found < 0:
            raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
        self._folders[found] = folder

    def wait(self, wanted: Callable[[Path], bool], until: float) -> Path | None:
        """The first file of interest; None if there was none until this moment of the monotonic clock."""
        while (left := until - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], min(left, 0.5))[0]:
                for path in self._events():
                    if wanted(path):
                        return path
        return None

    def _events(self) -> list[Path]:
        data = os.read(self._descriptor, 1 << 16)
        found, at = [], 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if name and watch in self._folders:
                found.append(self._folders[watch] / os.fsdecode(name))
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
