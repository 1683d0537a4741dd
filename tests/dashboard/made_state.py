"""A job's folder as a run leaves it, made without Spark: every file in its real format, written by the real writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from floodway.agent.loop.run_files import save_network
from floodway.job.decision import Mode
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.places import ShedFiles
from floodway.job.status.batches import Batch, BatchLog, Sketch
from floodway.job.status.figures import read_figures
from floodway.job.status.parts import keep_reason
from floodway.job.status.status import NodePart, PlanPart, Status, at_inputs, write_status
from floodway.job.store.store import LocalStore
from floodway.network.file import load_network
from floodway.network.model import Network

KEEPS = {"clicks": 0.8, "orders": 1.0, "enrich->dashboard": 1.0, "enrich->billing": 0.1}
CLICKS, ORDERS = 400, 500
TARGET = 2.0
LOSS = 0.2 * CLICKS / (CLICKS + ORDERS)


def demo_network() -> Network:
    """The shop of the examples."""
    return load_network(Path(__file__).parents[2] / "examples" / "networks" / "shop.yaml")


@dataclass
class MadeJob:
    """Writes one batch a second into `root`; `now` is the end of the last one, in whole seconds."""

    root: Path
    now: int
    name: str = "demo"
    batch: int = 0

    node: str = ""

    def __post_init__(self) -> None:
        self.ledger = Ledger(LocalStore(self.root))
        self.figures, last = read_figures(LocalStore(self.root))
        self.batches = BatchLog(LocalStore(self.root), last)

    @property
    def query(self) -> str:
        """The name of its query."""
        return f"{self.node or 'shop'}.main"

    def start(self, *, network: bool = True) -> None:
        """What is there before the first batch."""
        self.root.mkdir(parents=True, exist_ok=True)
        if network:
            save_network(self.root, demo_network())
        self._status()

    def run(
        self,
        batches: int,
        *,
        latency: float = 1.8,
        keeps: dict[str, float] | None = None,
        planned: dict[str, float] | None = None,
    ) -> None:
        """Some batches, one a second, with the demo's load; `planned` is what the status says, if not what was kept."""
        for _ in range(batches):
            self._one(latency, keeps or KEEPS, planned or keeps or KEEPS)

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
            self._record(found, latency)
            self.batch += 1
        self.ledger.append(lines)
        self._status()

    def mode(self) -> Mode:
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
        lines, mode = [], self.mode()
        for at, offered in places.items():
            kept = round(offered * keeps[at])
            lines.append(self._line(at, "shedder", offered, kept, keeps[at], mode))
        passed = {line.at: line.kept for line in lines}
        sinks = {"live": "enrich->dashboard", "invoices": "enrich->billing", "revenue": "orders"}
        return [
            *lines,
            *(self._line(out, "delivered", passed[at], passed[at], 1.0, mode) for out, at in sinks.items()),
        ]

    def _line(self, at: str, reason: str, offered: int, kept: int, keep: float, mode: Mode) -> LedgerLine:
        return LedgerLine(
            self.query,
            self.batch,
            at,
            reason,
            offered,
            kept,
            offered - kept,
            plan="1",
            mode=mode,
            keep_ppm=round(keep * 1e6),
            time_us=self.now * 1_000_000,
        )

    def _one(self, latency: float, keeps: dict[str, float], planned: dict[str, float]) -> None:
        lines = self.lines(keeps)
        self.ledger.append(lines)
        self._record(lines, latency)
        self.batch += 1
        self.now += 1
        self._status(planned)

    def _record(self, lines: Sequence[LedgerLine], latency: float) -> None:
        ended = lines[0].time_us / 1e6
        inputs = [line for line in lines if line.at in ("clicks", "orders")]
        batch = Batch(
            query=self.query,
            batch=self.batch,
            cut_seconds=ended - 1.0,
            ended_seconds=ended,
            offered=sum(line.offered for line in inputs),
            kept=sum(line.kept for line in inputs),
            mode=self.mode(),
            latencies=Sketch.of([(latency * 0.8, 500), (latency * 1.2, 500)]),
            delivered={line.at: line.kept for line in lines if line.reason == "delivered"},
            work_seconds=1.0,
            busy_seconds=1.0,
        )
        self.figures.add(lines, batch)
        self.batches.append(batch)

    def _status(self, keeps: Mapping[str, float] = KEEPS) -> None:
        waiting = {"clicks": 120, "orders": 150}
        arriving = {"clicks": float(CLICKS), "orders": float(ORDERS)}
        places = self.figures.places(keeps, float(self.now), arriving=arriving, waiting=waiting)
        rates, keep, totals = at_inputs(places, waiting)
        write_status(
            LocalStore(self.root),
            Status(
                name=f"{self.name}: {self.node}" if self.node else self.name,
                kind="node" if self.node else "run",
                mode=self.mode(),
                time=float(self.now),
                latency=self.figures.latency(TARGET),
                rates=rates,
                keep=keep,
                totals=totals,
                decision_seen=True if self.batch else None,
                reason=keep_reason(760, 900, mode=self.mode(), target_seconds=TARGET, batch_seconds=1.3),
                floor_seconds=0.4,
                capacity_needed=1.8,
                executors_more=4,
                executor_efficiency=0.83,
                batch_count=self.figures.batch_count,
                places=places,
                delivered=dict(self.figures.fold.total.delivered),
                nodes={"shop": NodePart(1.0, 1.0)},
                plan=PlanPart("8f3a01bc", "exact", "throughput", overloaded=True, scale=0.97),
                ledger=self.figures.ledger(),
                network=self.name,
                node=self.node,
            ),
        )
