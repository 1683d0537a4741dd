"""Several runs into one sink: each adds its results, none takes those of another for its own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import dataset

from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.spark.audit.run import audit
from floodway.spark.log import LogReader, LogWriter, create_log
from floodway.spark.query.fragment_query import FragmentQuery
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import NOTES, committed_offsets, query_key, read_notes
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import create_sink_logs
from floodway.spark.source import register

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark

TUPLES = 500
NETWORK = """
version: 1
name: shared-sinks
streams: {{s: {{log: {folder}/in}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: s, cost: 0.001}}}}
outputs:
  q1: {{from: work, sink: {folder}/log}}
  q2: {{from: work, sink: "parquet:{folder}/files"}}
  q3: {{from: work, sink: {folder}/log}}
"""


def made(folder: Path) -> Network:
    """The network, with all its input there."""
    log = create_log(folder / "in", "value bigint", stream="s")
    with LogWriter(log.path, sync=False) as writer:
        writer.append(pa.table({"value": list(range(TUPLES))}))
    return parse_network(NETWORK.format(folder=folder))


def query_of(spark: Session, network: Network, root: Path) -> FragmentQuery:
    (fragment,) = fragments(network, "A")
    register(spark)
    return FragmentQuery(spark, network, fragment, RunLayout(root), Ledger(RunLayout(root).store), lambda report: None)


def process(spark: Session, network: Network, root: Path) -> None:
    """One run with this state, until it has committed all of the input."""
    query = query_of(spark, network, root)
    create_sink_logs([query], network, RunLayout(root))
    query.start()
    try:
        while sum((o.end[0] for o in committed_offsets(query.checkpoint).values()), start=0) < TUPLES:
            assert query.failure() is None
            time.sleep(0.05)
    finally:
        query.stop()


def held(folder: Path) -> tuple[int, int]:
    """Tuples in the log and in the files."""
    log = sum(LogReader(folder / "log").end_positions().values())
    return log, dataset.dataset(folder / "files", partitioning="hive", exclude_invalid_files=True).count_rows()


def test_every_run_into_a_sink_adds_its_results(spark: Session, tmp_path: Path) -> None:
    network = made(tmp_path)
    states = [tmp_path / "first", tmp_path / "second"]
    for runs, state in enumerate(states, start=1):
        process(spark, network, state)
        assert held(tmp_path) == (2 * runs * TUPLES, runs * TUPLES)
    for state in states:
        found = audit(network, RunLayout(state))
        assert found.differences == () and found.tuples_delivered == 3 * TUPLES
        assert any("were delivered by 2 other writer(s)" in text for text in found.unchecked)


def test_who_deletes_a_checkpoint_gets_everything_again(spark: Session, tmp_path: Path) -> None:
    network, state = made(tmp_path), tmp_path / "state"
    process(spark, network, state)
    process(spark, network, state)  # goes on where it was, and finds nothing
    assert held(tmp_path) == (2 * TUPLES, TUPLES)
    first = query_key("A.main", state / "checkpoints" / "A.main")
    shutil.rmtree(state / "checkpoints")
    process(spark, network, state)
    second = query_key("A.main", state / "checkpoints" / "A.main")
    assert held(tmp_path) == (4 * TUPLES, 2 * TUPLES)
    assert {line.query for line in Ledger(RunLayout(state).store).read()} == {first, second}
    found = audit(network, RunLayout(state))
    assert found.differences == () and found.tuples_offered == 2 * TUPLES
    assert any(text.startswith(f"{first}: its checkpoint is gone") for text in found.unchecked)


def test_what_an_earlier_version_left_is_refused(spark: Session, tmp_path: Path) -> None:
    network = made(tmp_path)
    (tmp_path / "files" / "batch=0").mkdir(parents=True)
    with pytest.raises(InputError, match=r"outputs\.q2: .* do not say which run wrote them"):
        process(spark, network, tmp_path / "state")
    checkpoint = tmp_path / "old" / "checkpoints" / "A.main"
    checkpoint.mkdir(parents=True)
    (checkpoint / NOTES).write_text('{"v": 1, "tasks": 1, "began": {}}')
    with pytest.raises(InputError, match="made by another version"):
        read_notes(checkpoint)
    with pytest.raises(InputError, match="made by another version"):
        query_of(spark, network, tmp_path / "old")
