"""One process per state, on stores without locks: a lease that is renewed, taken over when it expires, and fenced.

    lease/000000000007.json     {"holder": ID, "who": "host, process 4711", "renewal": 12, "released": false}

An epoch is one tenure; its object is made by `create`, so that it has one holder. The holder writes it anew every few
seconds and looks for a later epoch: if there is one, it has lost the lease. Whoever wants the lease waits until the
latest epoch has not been written for `TTL_SECONDS` by the store's own clock, so that clocks of machines do not matter;
then it creates the next epoch, and looks once more whether the one before was renewed meanwhile. So of two processes
at most one goes on: the holder renews, then looks for a later epoch; the other creates that epoch, then looks for a
renewal. A holder that is gone for certain (released, or a process of this machine that has ended) is not waited for.

`LeasedStore` lets nothing be written without the lease. A process that is stopped between the look and the write may
still write once; who has the lease then writes over it with its next decision.

One process per state: by a lock of the operating system (`flock`), which goes with the process, or by a lease.

Two drivers with sheds of one name would write over each other's decisions, and a replayed batch would find others than
it ran with; two runs on one state folder would write the same checkpoints.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from floodway.errors import InputError
from floodway.job.store.store import InTime, LocalStore, Store, StoreError, always, make_folder, remove_drafts
from floodway.json_text import load_json

log = logging.getLogger(__name__)

FOLDER = "lease"
TTL_SECONDS = 30.0
RENEW_SECONDS = 7.5
_LOOK_SECONDS = 1.0


class LeaseLostError(StoreError):
    """Another process has taken the state over."""


def boot_time() -> float:
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The right to write to a store. `monotonic` and `sleep` are its clock."""

    def __init__(
        self, store: Store, *, monotonic: Callable[[], float] = boot_time, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._sleep = sleep
        self._holder = token_hex(8)
        self._lock = threading.Lock()
        self._renewal = 0
        self._renewed = -float("inf")
        self._ended = threading.Event()
        self.epoch = self._acquire()

    def check(self) -> None:
        """Return if this process may write now; LeaseLostError if another one has taken over."""
        if self._monotonic() - self._renewed >= TTL_SECONDS / 2:
            self.renew()

    def renew(self) -> None:
        """Write the lease anew, and look whether there is a later one."""
        with self._lock:
            began = self._monotonic()
            self._renewal += 1
            self._store.write(_name(self.epoch), self._body())
            later = [epoch for epoch in _epochs(self._store) if epoch > self.epoch]
            if later:
                self._renewed = -float("inf")
                raise LeaseLostError(
                    f"the state at {self._store.uri} was taken over by {_read(self._store, later[-1]).get('who')}",
                    hint="Stop one of the two jobs, or give them different names or places for their state",
                )
            self._renewed = began

    def renew_until_released(self) -> None:
        """The loop of a background thread."""
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self.renew()
            except LeaseLostError as error:
                log.error("%s", error)
                return
            except StoreError as error:
                log.warning("the lease could not be renewed: %s", error)

    def release(self) -> None:
        """Let the next process have it at once."""
        self._ended.set()
        with self._lock:
            if self._renewed > -float("inf"):
                self._store.write(_name(self.epoch), self._body(released=True))

    def _acquire(self) -> int:
        while True:
            last = max(_epochs(self._store), default=0)
            before = _read(self._store, last) if last else {"released": True}
            if not self._has_expired(last, before):
                continue
            self._renewed = self._monotonic()
            if not self._create(last + 1):
                continue
            if last and _read(self._store, last).get("renewal") != before.get("renewal"):
                self._store.write(_name(last + 1), self._body(released=True))
                raise self._refusal(before)
            for epoch in _epochs(self._store):
                if epoch < last:
                    self._store.remove(_name(epoch))
            return last + 1

    def _create(self, epoch: int) -> bool:
        # A put that was answered too late may be ours although it says that the object was there.
        if self._store.create(_name(epoch), self._body()):
            return True
        return _read(self._store, epoch).get("holder") == self._holder

    def _has_expired(self, epoch: int, before: dict[str, Any]) -> bool:
        """Wait until the holder of an epoch is gone; False if the epoch is not the latest any more."""
        if before.get("released") or _is_dead(before):
            return True
        log.warning("%s was used by %s: waiting until that is gone", self._store.uri, before.get("who"))
        while self._age(epoch) < TTL_SECONDS:
            self._sleep(_LOOK_SECONDS)
            now = _read(self._store, epoch)
            if now.get("released") or max(_epochs(self._store), default=0) != epoch:
                return False
            if now.get("renewal") != before.get("renewal"):
                raise self._refusal(now)
        return True

    def _age(self, epoch: int) -> float:
        """How long ago an epoch was written, by the store's own clock."""
        probe = f"{FOLDER}/now-{self._holder}"
        self._store.write(probe, b"")
        now, written = self._store.modified(probe), self._store.modified(_name(epoch))
        self._store.remove(probe)
        return TTL_SECONDS if now is None or written is None else now - written

    def _refusal(self, holder: dict[str, Any]) -> InputError:
        return InputError(
            f"{self._store.uri} is in use by {holder.get('who')}",
            hint="Stop that job first, or give this one another name or place for its state",
        )

    def _body(self, *, released: bool = False) -> bytes:
        who = f"{socket.gethostname()}, process {os.getpid()}"
        body = {"holder": self._holder, "who": who, "renewal": self._renewal, "released": released}
        return json.dumps({**body, "process": os.getpid(), "machine": _machine()}).encode()


class LeasedStore:
    """A store that is written under a lease only."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self.read = store.read
        self.names = store.names
        self.folders = store.folders
        self.modified = store.modified

    @property
    def uri(self) -> str:
        """See `Store`."""
        return self._store.uri

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        """See `Store`."""
        self._lease.check()
        return self._store.write(name, data, durable=durable, in_time=in_time)

    def create(self, name: str, data: bytes) -> bool:
        """See `Store`."""
        self._lease.check()
        return self._store.create(name, data)

    def remove(self, name: str) -> None:
        """See `Store`."""
        self._lease.check()
        self._store.remove(name)


def _machine() -> str:
    """Within which process numbers mean the same: this boot of this machine, this namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return token_hex(8)


def _is_dead(body: dict[str, Any]) -> bool:
    process = body.get("process")
    return body.get("machine") == _machine() and isinstance(process, int) and not Path(f"/proc/{process}").exists()


def _name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}.json"


def _epochs(store: Store) -> list[int]:
    names = (name.removeprefix(f"{FOLDER}/").removesuffix(".json") for name in store.names(FOLDER))
    return sorted(int(name) for name in names if name.isdecimal())


def _read(store: Store, epoch: int) -> dict[str, Any]:
    try:
        body = load_json(store.read(_name(epoch)) or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


log = logging.getLogger(__name__)

_WRITER = "writer.lock"
_held: dict[str, Store] = {}
_lock = threading.Lock()


def take(path: Path, hint: str) -> IO[str]:
    """Lock this file until it is closed; InputError that names the process which has it, StoreError without a disk."""
    try:
        make_folder(path.parent)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise InputError(f"{path.parent} is in use by process {holder}", hint=hint) from None
    except OSError as error:
        file.close()
        raise StoreError(
            f"{path.parent} cannot be locked",
            why=error.strerror or str(error),
            hint="Give a place on storage with locks (flock), or an address such as hdfs: or s3a:",
        ) from error
    try:
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"{os.getpid()}\n".encode())
    except OSError as error:
        file.close()
        raise _unwritable(path, error) from error
    remove_drafts(path.parent, time.time())
    return file


def _unwritable(path: Path, error: OSError) -> StoreError:
    why = error.strerror or str(error)
    return StoreError(f"{path} cannot be written", why=why, hint="Is the disk full, or the folder read-only?")


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
