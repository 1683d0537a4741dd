"""A run of one query as Spark and Floodway leave it, which can go on for as many batches as a test wants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.journal import note_beginnings, read_batch
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.offsets import BatchOffset

NETWORK = Network(
    "n",
    {"s": Stream("s", 100.0)},
    {"A": Node("A")},
    {"work": Operator("work", "A", ("s",), cost=0.001)},
    {"q": Output("q", "work")},
)
QUERY = "A.main"
OFFERED, APPENDED_AT_ONCE, SPARK_KEEPS = 10, 20, 100


class AgeingRun:
    """`live` adds batches of ten tuples, half of which are kept; the ledger keeps a few segments only."""

    def __init__(self, root: Path, *, kept_segments: int = 3) -> None:
        self.layout = RunLayout(root)
        self.batches = 0
        self.ledger = Ledger(self.layout.store, kept_segments=kept_segments)
        self.checkpoint = root / "checkpoints" / QUERY
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True)
        self.stream = create_log(self.layout.stream(NETWORK, "s"), "id bigint", stream="s").path
        self.sink = create_log(root / "outputs" / "q", "id bigint", stream="q").path

    def live(self, batches: int) -> None:
        """So many batches more."""
        with LogWriter(self.stream, sync=False) as writer:
            writer.append(pa.table({"id": list(range(OFFERED * batches))}))
        lines: list[LedgerLine] = []
        with LogWriter(self.sink, sync=False) as writer:
            for number in range(self.batches, self.batches + batches):
                offset = self._offset(number)
                self._journal(number, offset)
                kept = sum(offset.admission.count(*piece) for piece in offset.ranges())
                if kept:
                    writer.append(pa.table({"id": list(range(kept))}), tag=f"{QUERY}:q:{number}:0")
                lines += lines_of(number, kept)
                if len(lines) >= 2 * APPENDED_AT_ONCE:
                    self.ledger.append(lines)
                    lines = []
        self.ledger.append(lines)
        self.batches += batches

    @property
    def segments(self) -> list[Path]:
        """The ledger's segments, oldest first."""
        return sorted((self.layout.root / "ledger").glob("*.jsonl"))

    @staticmethod
    def _offset(number: int) -> BatchOffset:
        start, end = {0: OFFERED * number}, {0: OFFERED * (number + 1)}
        return BatchOffset("s", start, end, keep_ppm=500_000, mode="enforce", plan="p")

    def _journal(self, number: int, offset: BatchOffset) -> None:
        metadata = json.dumps({"batchTimestampMs": 1000 * number})
        (self.checkpoint / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{json.dumps(offset.to_json())}")
        (self.checkpoint / "commits" / str(number)).write_text("v1\n{}")
        if number == 0:
            note_beginnings(self.checkpoint, read_batch(self.checkpoint, 0))
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder / str(number - SPARK_KEEPS)).unlink(missing_ok=True)


def lines_of(number: int, kept: int) -> list[LedgerLine]:
    """The two lines of a batch: at the source, and at the output."""
    shed = LedgerLine(QUERY, number, "s", Reason.SHEDDER, OFFERED, kept, OFFERED - kept, "p", keep_ppm=500_000)
    return [shed, replace(shed, at="q", reason=Reason.DELIVERED, offered=kept, kept=kept, dropped=0)]
