"""An audit that cannot fail is worth nothing: every kind of untruth is told here once, and found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from floodway.contracts.federation_file import Federation, FragmentSpec
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.job.store.store import LocalStore
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.audit.run import audit, audit_federation
from floodway.spark.log import LogWriter, Retention, create_log
from floodway.spark.query.journal import NOTES, note_beginnings, read_batch, read_notes
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.sinks import batch_folder
from floodway.spark.source.offsets import BatchOffset
from tests.job.ledgers import open_segment

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


def write_run(
    root: Path, *, rows: dict[int, int] | None = None, offsets: tuple[BatchOffset, ...] = BATCHES, arrived: int = 2600
) -> RunLayout:
    """A finished run as Spark and Floodway leave it; `rows` overrides how many tuples a batch left in the sink."""
    layout = RunLayout(root)
    checkpoint = root / "checkpoints" / "A.main"
    fill(layout.stream(NETWORK, "s"), arrived)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    log = create_log(root / "outputs" / "q", "id bigint", stream="q")
    with LogWriter(log.path, sync=False) as writer:
        for number, offset in enumerate(offsets):
            metadata = json.dumps({"batchTimestampMs": 1000 * number})
            (checkpoint / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{json.dumps(offset.to_json())}")
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
            count = (rows or {}).get(number, counts(offset)[1])
            writer.append(pa.table({"id": list(range(count))}), tag=f"A.main:q:{number}:0")
    return layout


def fill(path: str | Path, count: int) -> None:
    log = create_log(path, "id bigint", stream="s")
    with LogWriter(log.path, sync=False) as writer:
        writer.append(pa.table({"id": list(range(count))}))


def forget(root: Path, *batches: int) -> None:
    """Remove what Spark removes of batches older than the last hundred."""
    for batch in batches:
        for folder in ("offsets", "commits"):
            (root / "checkpoints" / "A.main" / folder / str(batch)).unlink()


def true_lines() -> list[LedgerLine]:
    return [line for number, offset in enumerate(BATCHES) for line in lines_of(number, offset)]


def found(layout: RunLayout, lines: list[LedgerLine]) -> tuple[str, ...]:
    Ledger(layout.store).append(lines)
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
    Ledger(layout.store).append(true_lines())
    segment = open_segment(layout.store)
    segment.write_text(segment.read_text().replace('"dropped":0', '"dropped":7', 1))
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


def test_compacted_batches_are_compared_one_by_one(tmp_path: Path) -> None:
    many = tuple(BatchOffset("s", {0: 10 * n}, {0: 10 * n + 10}, mode="enforce") for n in range(40))
    lines = [line for number, offset in enumerate(many) for line in lines_of(number, offset)]
    layouts = [
        write_run(tmp_path / "true", offsets=many),
        write_run(tmp_path / "less", offsets=many, rows={3: 9, 4: 11}),
    ]
    for layout in layouts:
        with LogWriter(layout.root / "outputs" / "q", sync=False) as writer:
            assert writer.compact(0) > 0
    assert found(layouts[0], lines) == ()
    assert [text[:10] for text in found(layouts[1], lines)] == ["q, batch 3", "q, batch 4"]


@pytest.mark.parametrize(("arrived", "wrong"), [(2600, ()), (2599, ("ends at 2599",))])
def test_a_query_has_read_no_further_than_its_input_reaches(
    tmp_path: Path, arrived: int, wrong: tuple[str, ...]
) -> None:
    told = found(write_run(tmp_path, arrived=arrived), true_lines())
    assert len(told) == len(wrong) and all(part in text for part, text in zip(wrong, told, strict=True))


def test_an_input_that_is_not_there_is_a_difference(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    shutil.rmtree(layout.stream(NETWORK, "s"))
    assert any("no log at" in text for text in found(layout, true_lines()))


def test_a_line_older_than_the_journal_is_found_by_the_sum(tmp_path: Path) -> None:
    first, *rest = true_lines()
    lie = replace(first, offered=first.offered - 500, dropped=first.dropped - 500)
    layout = write_run(tmp_path / "true")
    forget(layout.root, 0)
    assert found(layout, [first, *rest]) == ()
    assert any("no longer has the decisions of batches 0 to 0" in text for text in audit(NETWORK, layout).unchecked)
    layout = write_run(tmp_path / "lie")
    forget(layout.root, 0)
    assert any("by its positions the query has read 1500" in text for text in found(layout, [lie, *rest]))


def test_where_a_query_began_is_remembered_when_spark_has_forgotten_it(tmp_path: Path) -> None:
    later = tuple(
        replace(one, start={0: one.start[0] + 400}, end={0: one.end[0] + 400}, mode="enforce", keep_ppm=1_000_000)
        for one in BATCHES
    )
    lines = [line for number, offset in enumerate(later) for line in lines_of(number, offset)]
    layout = write_run(tmp_path, offsets=later, arrived=3000)
    checkpoint = tmp_path / "checkpoints" / "A.main"
    for batch in range(3):
        note_beginnings(checkpoint, read_batch(checkpoint, batch))
    assert read_notes(checkpoint).began == {"s": {0: 400}}
    forget(tmp_path, 0)
    assert found(layout, lines) == ()
    (checkpoint / NOTES).unlink()
    note_beginnings(checkpoint, read_batch(checkpoint, 1))  # an oldest batch that is not the first tells nothing
    assert not (checkpoint / NOTES).exists()
    with LogWriter(layout.stream(NETWORK, "s"), sync=False) as writer:
        writer.append(pa.table({"id": [1]}))
        writer.retire(0, Retention(max_bytes=1))
    assert audit(NETWORK, layout).differences == ()
    assert any("where it began is not on record" in text for text in audit(NETWORK, layout).unchecked)


def test_an_oldest_batch_without_news_is_not_taken_for_news(tmp_path: Path) -> None:
    offsets = (BATCHES[0], BATCHES[1], BATCHES[1], BATCHES[2])  # nothing came for batch 2
    layout = write_run(tmp_path, offsets=offsets, rows={2: 0})
    lines = [line for number, offset in enumerate(offsets) for line in lines_of(number, offset)]
    lines = [replace(line, offered=0, kept=0, dropped=0) if line.batch == 2 else line for line in lines]
    assert found(layout, lines) == ()
    forget(tmp_path, 0, 1)
    assert audit(NETWORK, layout).differences == ()


def test_tuples_that_nobody_delivered_are_found(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    with LogWriter(layout.root / "outputs" / "q", sync=False) as writer:
        writer.append(pa.table({"id": [9] * 777}))
    assert found(layout, true_lines()) == ("q: 777 tuple(s) in the log were not delivered by A.main:q",)


def test_a_sink_that_retention_has_cut_is_compared_from_there_on_and_in_all(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    with LogWriter(layout.root / "outputs" / "q", sync=False) as writer:
        writer.retire(0, Retention(max_bytes=1))
    assert found(layout, true_lines()) == ()
    first, delivered, *rest = true_lines()
    less = [replace(line, kept=line.kept - 1, dropped=line.dropped + 1) for line in (first, delivered)]
    layout = write_run(tmp_path / "less")
    forget(layout.root, 0)
    with LogWriter(layout.root / "outputs" / "q", sync=False) as writer:
        writer.retire(0, Retention(max_bytes=1))
    assert any("were appended to the log" in text for text in found(layout, [*less, *rest]))


def test_dead_letters_are_in_their_log_and_in_no_output(tmp_path: Path) -> None:
    first, *rest = true_lines()
    dead = replace(first, reason=Reason.DEAD_LETTER, offered=first.kept, kept=first.kept - 50, dropped=50)
    told = found(write_run(tmp_path / "none"), [first, dead, *rest])
    assert any("dead letters of s: the ledger says 50" in text for text in told)
    assert any(f"{first.kept} tuples were delivered to q, {first.kept - 50} came so far" in text for text in told)
    layout = write_run(tmp_path / "some", rows={0: first.kept - 50})
    log = create_log(layout.root / "dead-letters" / "s", "raw string")
    with LogWriter(log.path, sync=False) as writer:
        writer.append(pa.table({"raw": ["x"] * 50}), tag="A.main:dead-letter:0:0")
    delivered = replace(rest[0], offered=first.kept - 50, kept=first.kept - 50)
    assert found(layout, [first, dead, delivered, *rest[1:]]) == ()


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_files_are_counted_by_batch(tmp_path: Path, kind: str) -> None:
    network = replace(NETWORK, outputs={"q": Output("q", "work", sink=f"{kind}:{tmp_path / 'out'}")})
    layout = write_run(tmp_path)
    Ledger(layout.store).append(true_lines())
    missing = audit(network, layout).differences
    assert [text[:10] for text in missing] == ["q, batch 0", "q, batch 1", "q, batch 2"]
    for number, offset in enumerate(BATCHES):
        folder = Path(batch_folder(str(tmp_path / "out"), "A.main", "q", number))
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()
        table = pa.table({"id": list(range(counts(offset)[1]))})
        write_files(table, folder / f"part-0.{kind}")
    assert audit(network, layout).differences == ()
    write_files(pa.table({"id": [1]}), folder.with_name("batch=1") / f"part-1.{kind}")
    (difference,) = audit(network, layout, full=True).differences
    assert difference.startswith("q, batch 1")


def write_files(table: pa.Table, path: Path) -> None:
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        {".parquet": parquet.write_table, ".orc": orc.write_table}[path.suffix](table, path)


def test_files_of_another_format_must_be_there(tmp_path: Path) -> None:
    network = replace(NETWORK, outputs={"q": Output("q", "work", sink=f"csv:{tmp_path / 'out'}")})
    layout = write_run(tmp_path)
    Ledger(layout.store).append(true_lines())
    for number in (0, 2):
        Path(batch_folder(str(tmp_path / "out"), "A.main", "q", number)).mkdir(parents=True)
    result = audit(network, layout)
    assert [text[:10] for text in result.differences] == ["q, batch 1"]
    assert any("rows of csv files were not counted" in text for text in result.unchecked)


@pytest.mark.parametrize("sink", ["console", "parquet:s3a://bucket/out", "kafka://127.0.0.1:9/q"])
def test_what_cannot_be_counted_is_said(tmp_path: Path, sink: str) -> None:
    network = replace(NETWORK, outputs={"q": Output("q", "work", sink=sink)})
    layout = write_run(tmp_path)
    Ledger(layout.store).append(true_lines())
    result = audit(network, layout)
    assert result.differences == () and any(text.startswith("q: ") for text in result.unchecked)


def test_a_torn_segment_is_a_difference(tmp_path: Path) -> None:
    layout = write_run(tmp_path)
    segment = sorted((layout.root / "outputs" / "q").glob("*/*.arrow"))[0]
    segment.write_bytes(segment.read_bytes()[:700])
    assert any(text.startswith(("q:", "q,")) for text in found(layout, true_lines()))


def test_a_fragment_of_a_federation_is_held_against_its_input_and_dead_letters_too(tmp_path: Path) -> None:
    spec = FragmentSpec("f", "A", "entry", {"in": "in"}, "out")
    federation, home = Federation("test", {}, (), {"f": spec}), tmp_path / "fragments" / "f"
    checkpoint = home / "checkpoint"
    offset = BatchOffset("f.in", {0: 0}, {0: 100}, mode="off")
    for folder, text in (
        ("offsets", f'v1\n{{"batchTimestampMs": 0}}\n{json.dumps(offset.to_json())}'),
        ("commits", "v1"),
    ):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text(text)
    shed = LedgerLine("f", 0, "f.in", Reason.SHEDDER, 100, 100, 0)
    dead = replace(shed, reason=Reason.DEAD_LETTER, kept=97, dropped=3)
    Ledger(LocalStore(home)).append([shed, dead, replace(shed, at="f", reason=Reason.DELIVERED, offered=9, kept=9)])
    differences = audit_federation(federation, tmp_path)["f"].differences
    assert ["no log at" in differences[0], len(differences)] == [True, 3]
    fill(tmp_path / "in", 100)
    for path, sink, count in ((tmp_path / "out", "f", 9), (home / "dead-letters" / "in", "dead-letter", 3)):
        log = create_log(path, "id bigint")
        with LogWriter(log.path, sync=False) as writer:
            writer.append(pa.table({"id": list(range(count))}), tag=f"f:{sink}:0:0")
    assert audit_federation(federation, tmp_path)["f"].differences == ()
