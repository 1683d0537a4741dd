"""An audit that cannot fail is worth nothing: every kind of untruth is told here once, and found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.audit import audit
from floodway.spark.layout import Layout
from floodway.spark.ledger import Ledger, LedgerLine, Reason
from floodway.spark.log import LogWriter, create_log
from floodway.spark.source.offsets import BatchOffset

NETWORK = Network(
    "n",
    {"s": Stream("s", 100.0)},
    {"A": Node("A")},
    {"work": Operator("work", "A", ("s",), cost=0.001)},
    {"q": Output("q", "work")},
)
BATCHES = (
    BatchOffset("s", {0: 0}, {0: 1000}, keep_ppm=300_000, mode="enforce", plan="1"),
    BatchOffset("s", {0: 1000}, {0: 1500}, keep_ppm=500_000, mode="enforce", plan="2"),
    BatchOffset("s", {0: 1500}, {0: 2600}, keep_ppm=900_000, mode="observe", plan="3"),
)


def counts(offset: BatchOffset) -> tuple[int, int]:
    offered = sum(end - start for _, start, end in offset.ranges())
    return offered, sum(offset.admission.count(*piece) for piece in offset.ranges())


def lines_of(number: int, offset: BatchOffset) -> list[LedgerLine]:
    offered, kept = counts(offset)
    shed = LedgerLine("A.main", number, "s", Reason.SHEDDER, offered, kept, offered - kept, offset.plan, offset.mode)
    return [shed, replace(shed, at="q", reason=Reason.DELIVERED, offered=kept, kept=kept, dropped=0)]


def write_run(root: Path, *, rows: dict[int, int] | None = None, offsets: tuple[BatchOffset, ...] = BATCHES) -> Layout:
    """A finished run as Spark and Floodway leave it; `rows` overrides how many tuples a batch left in the sink."""
    layout = Layout(root)
    checkpoint = root / "checkpoints" / "A.main"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    log = create_log(root / "outputs" / "q", "id bigint", stream="q")
    with LogWriter(log.path, sync=False) as writer:
        for number, offset in enumerate(offsets):
            metadata = json.dumps({"batchTimestampMs": 1000 * number})
            (checkpoint / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{json.dumps(offset.to_json())}")
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
            count = (rows or {}).get(number, counts(offset)[1])
            writer.append(pa.table({"id": list(range(count))}), tag=f"A.main:{number}:0")
    return layout


def true_lines() -> list[LedgerLine]:
    return [line for number, offset in enumerate(BATCHES) for line in lines_of(number, offset)]


def found(layout: Layout, lines: list[LedgerLine]) -> tuple[str, ...]:
    Ledger(layout.ledger).append(lines)
    return audit(NETWORK, layout).differences


def test_a_true_ledger_reconciles(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    assert found(layout, true_lines()) == ()
    result = audit(NETWORK, layout)
    assert (result.batches, result.tuples_offered) == (3, 2600)
    assert result.tuples_delivered == sum(counts(offset)[1] for offset in BATCHES)


def test_a_line_that_counts_otherwise_is_found(tmp_path: Path) -> None:
    first, *rest = true_lines()
    lie = replace(first, kept=first.kept - 1, dropped=first.dropped + 1)
    assert any("journaled decision gives" in text for text in found(write_run(tmp_path), [lie, *rest]))


def test_a_ledger_changed_behind_our_back_is_found(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    Ledger(layout.ledger).append(true_lines())
    text = layout.ledger.read_text().replace('"dropped":0', '"dropped":7', 1)
    layout.ledger.write_text(text)
    assert any("≠" in difference for difference in audit(NETWORK, layout).differences)


def test_a_committed_batch_without_lines_is_found(tmp_path: Path) -> None:
    lines = [line for line in true_lines() if line.batch != 2]
    assert any("batch 2: committed by Spark" in text for text in found(write_run(tmp_path), lines))


@pytest.mark.parametrize("rows", [{1: 10}, {1: 400}])
def test_a_sink_with_tuples_missing_or_doubled_is_found(tmp_path: Path, rows: dict[int, int]) -> None:
    assert any("q, batch 1" in text for text in found(write_run(tmp_path, rows=rows), true_lines()))


def test_deleted_tuples_are_offered_and_dropped_by_retention(tmp_path: Path) -> None:
    jump = replace(BATCHES[2], lost={0: 400})
    *rest, shed, delivered = [line for i, o in enumerate((*BATCHES[:2], jump)) for line in lines_of(i, o)]
    shed = replace(shed, offered=1100, kept=1100)
    gone = replace(shed, reason=Reason.RETENTION, kept=700, dropped=400)
    layout = write_run(tmp_path / "true", offsets=(*BATCHES[:2], jump))
    assert found(layout, [*rest, shed, gone, delivered]) == ()
    assert audit(NETWORK, layout).tuples_offered == 2600
    layout = write_run(tmp_path / "untold", offsets=(*BATCHES[:2], jump))
    assert any("400 tuple(s) lost to retention" in text for text in found(layout, [*rest, shed, delivered]))


def test_a_hole_between_batches_is_found(tmp_path: Path) -> None:
    broken = (BATCHES[0], replace(BATCHES[1], start={0: 1001}), BATCHES[2])
    assert any("starts at" in text for text in found(write_run(tmp_path, offsets=broken), true_lines()))


def test_a_batch_that_reached_the_sink_but_not_the_ledger_waits_for_its_replay(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    (tmp_path / "checkpoints" / "A.main" / "commits" / "2").unlink()
    assert found(layout, [line for line in true_lines() if line.batch != 2]) == ()


def test_compacted_batches_are_compared_together(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    with LogWriter(layout.root / "outputs" / "q", sync=False) as writer:
        writer.compact(0)
    assert found(layout, true_lines()) == ()
