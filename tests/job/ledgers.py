"""What tests of ledgers share."""

from __future__ import annotations

from pathlib import Path

from floodway.job.ledger.ledger_line import LedgerLine
from floodway.job.store.store import InTime, LocalStore, Store, always


def open_segment(store: LocalStore) -> Path:
    """The file that the next line of a ledger on a disk is appended to."""
    return max((store.folder / "ledger").glob("*.jsonl"))


def line(batch: int, *, offered: int = 10, kept: int = 4, reason: str = "shedder", at: str = "clicks") -> LedgerLine:
    """A line of a query q."""
    return LedgerLine("q", batch, at, reason, offered, kept, offered - kept, plan="p1", keep_ppm=400_000, time_us=batch)


class Objects:
    """A disk that offers what every store offers and no more: nothing can be appended. Counts what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(folder)
        self.asked: list[str] = []

    @property
    def uri(self) -> str:
        return self._store.uri

    def read(self, name: str) -> bytes | None:
        self.asked.append(f"read {name}")
        return self._store.read(name)

    def write(self, name: str, data: bytes, *, durable: bool = True, in_time: InTime = always) -> bool:
        self.asked.append(f"write {name}")
        return self._store.write(name, data, durable=durable, in_time=in_time)

    def create(self, name: str, data: bytes) -> bool:
        self.asked.append(f"create {name}")
        return self._store.create(name, data)

    def names(self, under: str = "") -> list[str]:
        self.asked.append(f"names {under}")
        return self._store.names(under)

    def folders(self, under: str = "") -> list[str]:
        return self._store.folders(under)

    def remove(self, name: str) -> None:
        self.asked.append(f"remove {name}")
        self._store.remove(name)

    def modified(self, name: str) -> float | None:
        return self._store.modified(name)


def stores(folder: Path) -> dict[str, Store]:
    """One store of each kind that a ledger treats in its own way."""
    return {"disk": LocalStore(folder / "disk"), "objects": Objects(folder / "objects")}
