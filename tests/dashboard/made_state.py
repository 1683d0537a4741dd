"""A job's folder as a run leaves it, made without Spark: every file in its real format, written by the real writers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from floodway.agent.loop.batches import BatchFigures, BatchLog
from floodway.agent.loop.run_files import save_network
from floodway.job.ledger import Ledger, LedgerLine
from floodway.job.shed_state import ShedFiles, write_atomically
from floodway.job.store import LocalStore
from floodway.network.file import parse_network
from floodway.network.model import Network

KEEPS = {"clicks": 0.8, "orders": 1.0, "enrich->dashboard": 1.0, "enrich->billing": 0.1}
CLICKS, ORDERS = 400, 500
TARGET = 2.0
LOSS = 0.2 * CLICKS / (CLICKS + ORDERS)


def demo_network() -> Network:
    """The network of `floodway demo`."""
    text = files("floodway.cli").joinpath("demo.yaml").read_text("utf-8")
    return parse_network(text, source="demo.yaml")


@dataclass
class MadeJob:
    """Writes one batch a second into `root`; `now` is the end of the last one, in whole seconds."""

    root: Path
    now: int
    name: str = "demo"
    batch: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(LocalStore(self.root))

    def start(self, *, network: bool = True) -> None:
        """What is there before the first batch."""
        self.root.mkdir(parents=True, exist_ok=True)
        if network:
            save_network(self.root, demo_network())
        self._status(latency=None)

    def run(self, batches: int, *, latency: float = 1.8, keeps: dict[str, float] | None = None) -> None:
        """Some batches, one a second, with the demo's load."""
        for _ in range(batches):
            self._one(latency, keeps or KEEPS)

    def long(self, batches: int, *, every: int, latency: float = 1.8) -> None:
        """Many batches with some seconds between them, each with the load of those seconds, all written at once."""
        once, lines = self.lines(KEEPS), []
        for _ in range(batches):
            self.now += every
            found = [
                replace(
                    one,
                    batch=self.batch,
                    time_us=(self.now - 1) * 1_000_000,
                    offered=one.offered * every,
                    kept=one.kept * every,
                    dropped=one.dropped * every,
                )
                for one in once
            ]
            lines += found
            BatchLog(self.root).append(self._figures(found, latency))
            self.batch += 1
        self.ledger.append(lines)
        self._status(latency)

    def mode(self) -> str:
        """The mode in force: what was wished for, else enforce."""
        return ShedFiles(self.root).read_mode() or "enforce"

    def lines(self, keeps: dict[str, float]) -> list[LedgerLine]:
        """The ledger's lines of the next batch."""
        places = {
            "clicks": CLICKS,
            "orders": ORDERS,
            "enrich->dashboard": round(CLICKS * keeps["clicks"]),
            "enrich->billing": round(CLICKS * keeps["clicks"]),
        }
        lines = []
        for at, offered in places.items():
            kept = round(offered * keeps[at])
            lines.append(self._line(at, "shedder", offered, kept, keeps[at]))
        passed = {line.at: line.kept for line in lines}
        sinks = {"live": "enrich->dashboard", "invoices": "enrich->billing", "revenue": "orders"}
        return [
            *lines,
            *(self._line(out, "delivered", passed[at], passed[at], 1.0) for out, at in sinks.items()),
        ]

    def _line(self, at: str, reason: str, offered: int, kept: int, keep: float) -> LedgerLine:
        return LedgerLine(
            "shop.main",
            self.batch,
            at,
            reason,
            offered,
            kept,
            offered - kept,
            plan="1",
            mode=self.mode(),
            keep_ppm=round(keep * 1e6),
            time_us=self.now * 1_000_000,
        )

    def _one(self, latency: float, keeps: dict[str, float]) -> None:
        lines = self.lines(keeps)
        self.ledger.append(lines)
        BatchLog(self.root).append(self._figures(lines, latency))
        self.batch += 1
        self.now += 1
        self._status(latency, keeps)

    def _figures(self, lines: Sequence[LedgerLine], latency: float) -> BatchFigures:
        ended = lines[0].time_us / 1e6
        delivered = {line.at: line.kept for line in lines if line.reason == "delivered"}
        shown = ((round(latency * 800), 500), (round(latency * 1200), 500))
        return BatchFigures("shop.main", self.batch, ended - 1.0, ended, 1.0, 1.0, delivered, shown)

    def _status(self, latency: float | None, keeps: dict[str, float] | None = None) -> None:
        body: dict[str, Any] = {
            "name": self.name,
            "time_us": self.now * 1_000_000,
            "mode": self.mode(),
            "target_seconds": TARGET,
            "latency_seconds": latency,
            "rates": {"clicks": float(CLICKS), "orders": float(ORDERS)},
            "keeps": dict(keeps or KEEPS),
            "load": {"shop": 1.0},
            "overloaded": True,
            "loss": LOSS,
            "scale": 0.97,
            "unreachable": False,
            "floor_seconds": 0.4,
            "reasons": {"shop.main": "n* = 1.29 s of work: overhead 0.05 s, cost 1.02"},
            "arrived": {"clicks": self.batch * CLICKS + 120, "orders": self.batch * ORDERS + 150},
            "batches": self.batch,
            "last": None,
        }
        write_atomically(self.root / "status.json", json.dumps(body))
