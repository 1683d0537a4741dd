"""Where a job's state lies: a flat set of named objects at one URI, the same on a disk, HDFS and object stores.

    STORE.uri + "/" + name          names are relative: "control.json", "ledger/00000000.jsonl"

Object stores have no append, no atomic rename and no hard link. What every store has, and all that the rest of Floodway
relies on:

- `write` replaces an object whole: a reader sees the old one or the new one, never a part;
- `create` makes an object that is not there yet: of several writers one gets True, the others False;
- what either has returned from is durable, and is seen by every later `read` and `names`.

`LocalStore` is a folder. The others: `store_arrow.py` (pyarrow, no JVM), `spark/session/hadoop_store.py` (Spark's own
file systems and credentials).
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Protocol
from urllib.parse import unquote, urlsplit

from floodway.errors import FloodwayError, InputError

_DRAFT = re.compile(r"\..+\.[0-9a-f]{16}")
_CLAIM = re.compile(r"[0-9a-f]{16}")
DRAFT_SECONDS = 3600.0
OBJECT_SCHEMES = ("s3a", "s3", "gs", "abfss", "abfs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
InTime = Callable[[], bool]
CLAIM_SECONDS = 60.0
ATTEMPTS = 50


def always() -> bool:
    """What is never too late."""
    return True


class StoreError(FloodwayError):
    """A place for state that cannot be reached, read or written; `why` is what its file system says."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str, why: str = "") -> None:
        super().__init__(f"{message}: {why}" if why else message, hint=hint)
        self.why = why


class Store(Protocol):
    """Named objects at one place. Every method raises StoreError when the place cannot do it."""

    @property
    def uri(self) -> str:
        """The place, without a slash at the end; an object's own address is `uri/name`."""

    def read(self, name: str) -> bytes | None:
        """The object; None if there is none."""

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        """Replace the object whole. What means nothing after a crash of the machine need not be `durable`.

        `in_time` is asked at the last moment before readers can see the new object: after what takes long where the
        store can rename, else before the one request. If it says no, nothing is changed, and the answer is False.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Make the object; False, with nothing changed, if it is there."""

    def names(self, under: str = "") -> list[str]:
        """The names of the objects in a folder, sorted; none where there is no such folder."""

    def folders(self, under: str = "") -> list[str]:
        """The names of the folders in a folder, sorted; a folder is there as long as objects are in it."""

    def remove(self, name: str) -> None:
        """Remove the object; nothing happens if it is not there."""

    def modified(self, name: str) -> float | None:
        """When the object was written, in seconds of the epoch by the store's own clock; None if it is not there."""


def scheme_of(place: str) -> str:
    """The scheme of a URI, in small letters; `file` for a bare path.

    >>> scheme_of("s3a://bucket/state"), scheme_of("/data/state"), scheme_of("C:/state")
    ('s3a', 'file', 'file')
    """
    found = _SCHEME.match(place)
    return found[1].lower() if found else "file"


def checked_place(place: str) -> str:
    """A place without its last slash; InputError for an address that leaves out what object stores need.

    >>> checked_place("s3a://bucket/state/")
    's3a://bucket/state'
    """
    scheme = scheme_of(place)
    if scheme in OBJECT_SCHEMES and not urlsplit(place).netloc:
        raise InputError(f"state location {place!r} names no bucket or container", hint=f"Write {scheme}://NAME/path")
    return place.rstrip("/") or "/"


def local_folder(place: str) -> Path:
    """The folder that a `file:` URI or a bare path names."""
    path = unquote(urlsplit(place).path) if _SCHEME.match(place) else place
    return Path(path).expanduser().absolute()


def join(place: str, *names: str) -> str:
    """The address of what lies below a place."""
    return "/".join((place.rstrip("/"), *names))


def prefixed(under: str, name: str) -> str:
    """The name of what is called so in a folder of a store."""
    return f"{under}/{name}" if under else name


def probe(store: Store) -> None:
    """Refuse a place that cannot do what a job needs: at the start, not in the middle of a run. StoreError says why."""
    name = f"probe-{token_hex(8)}"
    try:
        if isinstance(store, LocalStore):
            store.create(name, b"")  # needs hard links, which not every file system has; elsewhere it leaves a trace
        store.write(name, b"")
        store.remove(name)
    except StoreError as error:
        raise StoreError(
            f"the state location {store.uri} cannot be written", why=error.why, hint=error.hint or ""
        ) from error


class LocalStore:
    """A folder on a disk. Folders that it makes are the user's alone, because tuples may be in them, if not told else.

    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> store.create("ledger/0", b"a"), store.create("ledger/0", b"b"), store.read("ledger/0"), store.names("ledger")
    (True, False, b'a', ['ledger/0'])
    """

    def __init__(self, folder: Path | str, *, folder_mode: int = 0o700) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._folder_mode = folder_mode

    @property
    def uri(self) -> str:
        """The folder as a `file:` URI."""
        return self.folder.as_uri()

    def path(self, name: str) -> Path:
        """The file of an object."""
        parts = name.split("/")
        if not all(parts) or any(part in (".", "..") for part in parts):
            raise ValueError(f"{name!r} is no name of an object")
        return self.folder.joinpath(*parts)

    def read(self, name: str) -> bytes | None:
        with self._worded(name, "read"):
            try:
                return self.path(name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        path = self.path(name)
        with self._worded(name, "written"), self._draft(path, data, durable=durable) as draft:
            if not in_time():
                return False
            draft.replace(path)
            if durable:
                sync_folder(path.parent)
        return True

    def create(self, name: str, data: bytes) -> bool:
        path = self.path(name)
        with self._worded(name, "written"), self._draft(path, data, durable=True) as draft:
            try:
                # A link, unlike a rename, does not replace what is there.
                path.hardlink_to(draft)
            except FileExistsError:
                return False
            sync_folder(path.parent)
        return True

    def names(self, under: str = "") -> list[str]:
        with self._worded(under or ".", "listed"):
            return [prefixed(under, one.name) for one in self._listed(under) if one.is_file()]

    def folders(self, under: str = "") -> list[str]:
        with self._worded(under or ".", "listed"):
            return [prefixed(under, one.name) for one in self._listed(under) if one.is_dir()]

    def remove(self, name: str) -> None:
        with self._worded(name, "removed"):
            self.path(name).unlink(missing_ok=True)

    def modified(self, name: str) -> float | None:
        with self._worded(name, "read"):
            try:
                return self.path(name).stat().st_mtime
            except FileNotFoundError:
                return None

    def _listed(self, under: str) -> list[Path]:
        try:
            found = list((self.folder / under).iterdir())
        except FileNotFoundError:
            return []
        return sorted(path for path in found if not path.name.startswith("."))

    @contextmanager
    def _draft(self, path: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
        """A file with this content beside its target, removed at the end if it was not renamed."""
        make_folder(path.parent, self._folder_mode)
        draft = draft_of(path)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode(path.parent))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(descriptor)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _worded(self, name: str, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.folder / name} cannot be {done}",
                why=error.strerror or str(error),
                hint="Check that the folder is there, writable and not full, or give another place for the state",
            ) from error


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Make a folder and those above it, durably, for the user alone; one that is there stays as it is."""
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    for made in reversed(missing):
        made.mkdir(mode=mode, exist_ok=True)
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or removed in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_mode(folder: Path) -> int:
    """Who may read a file: whoever may enter its folder, nobody else."""
    return 0o600 | (folder.stat().st_mode & 0o044)


def draft_of(path: Path) -> Path:
    """Where the next content of a file is written.

    Not by the process's number: in containers every process has the same one, and so has every thread of a process.
    """
    return path.with_name(f".{path.name}.{token_hex(8)}")


def remove_drafts(folder: Path, now_seconds: float) -> None:
    """Remove what writers that were killed have left in a folder and those in it: a young one may still be written."""
    for path in (*folder.glob(".*"), *folder.glob("*/.*")):
        with suppress(OSError):
            if _DRAFT.fullmatch(path.name) and now_seconds - path.stat().st_mtime > DRAFT_SECONDS:
                path.unlink()


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a small file so that a reader sees the old or the new one, never half.

    What is written many times a second and means nothing after a crash of the machine need not be `durable`.
    """
    LocalStore(path.parent).write(path.name, f"{text}\n".encode(), durable=durable)


def create_by_claim(
    store: Store,
    name: str,
    data: bytes,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Make an object on a store whose client cannot put conditionally; False, with nothing changed, if it is there.

    What a store must offer: an object that was put is seen by every later list (S3 since December 2020, Azure, Google).

    1. put a claim `.claims/NAME-ID` beside it;
    2. list the claims, then look for NAME: if it is there, give way; if there is another claim, take the own one back,
       wait a random moment and begin again; else
    3. put NAME, then remove the claim.

    Two writers cannot both pass step 2: the one that put its claim later would have seen the other's claim, or its
    object. A writer that dies in between leaves a claim behind; after `CLAIM_SECONDS`, by the store's clock, it no
    longer counts. For that reason a writer that needed half as long to get to step 3 begins again, and a put takes at
    most the other half.

    Clients leave an empty folder where they remove the last object of one: all claims of a folder share one.
    """
    if store.modified(name) is not None:
        return False
    folder, _, last = name.rpartition("/")
    claims = prefixed(folder, f".claims/{last}-")
    own = f"{claims}{token_hex(8)}"
    for _ in range(ATTEMPTS):
        began = monotonic()
        store.write(own, b"")
        try:
            alone = _is_alone(store, claims, own)
            if store.modified(name) is not None:
                return False
            if alone and monotonic() - began < CLAIM_SECONDS / 2:
                store.write(name, data)
                return True
        finally:
            store.remove(own)
        sleep(random.uniform(0.05, 0.5))
    raise StoreError(
        f"{store.uri}/{name} cannot be created: other writers claim it again and again",
        hint="See that only one job uses this place for its state",
    )


def _is_alone(store: Store, claims: str, own: str) -> bool:
    """Whether no other claim that begins so is alive, judged by when the store itself says that each was put."""
    found = (name for name in store.names(claims.rpartition("/")[0]) if _CLAIM.fullmatch(name.removeprefix(claims)))
    others = [name for name in found if name != own]
    if not others:
        return True
    now = store.modified(own) or 0.0
    return all(now - at >= CLAIM_SECONDS for at in map(store.modified, others) if at is not None)
