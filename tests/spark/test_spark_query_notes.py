"""What is kept inside a checkpoint: the tasks a query was started with, and notes that nobody asks for go."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import LocalStore
from floodway.network.model import Network, Node, Operator, Output, Stream
from floodway.spark.query.fragment_query import FragmentQuery
from floodway.spark.query.fragments import fragments
from floodway.spark.query.journal import NOTES, note_tasks, read_notes
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.notes import forget_gone, leave, left
from floodway.spark.source.offsets import BatchOffset

NETWORK = Network(
    "n", {"s": Stream("s")}, {"A": Node("A")}, {"work": Operator("work", "A", ("s",))}, {"q": Output("q", "work")}
)


def query(root: Path, cpu: float) -> FragmentQuery:
    network = replace(NETWORK, nodes={"A": Node("A", cpu=cpu)})
    (fragment,) = fragments(network, "A")
    session = cast(SparkSession, object())  # nothing is started
    return FragmentQuery(session, network, fragment, RunLayout(root), Ledger(LocalStore(root)), lambda report: None)


def test_a_query_goes_on_with_the_tasks_it_was_started_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = query(tmp_path, cpu=2.0)
    assert first.tasks == 2 and not (first.checkpoint / NOTES).exists()
    note_tasks(first.checkpoint, first.tasks)
    with caplog.at_level(logging.WARNING):
        assert query(tmp_path, cpu=2.4).tasks == 2
        assert not caplog.records
        assert query(tmp_path, cpu=4.0).tasks == 2
    assert "continues with 2 task(s)" in caplog.text and "the 4 that" in caplog.text
    note_tasks(first.checkpoint, 4)
    assert read_notes(first.checkpoint).tasks == 2
    assert query(tmp_path / "new", cpu=4.0).tasks == 4


def test_notes_that_somebody_changed_are_refused(tmp_path: Path) -> None:
    (tmp_path / NOTES).write_text('{"v": 1, "tasks": "many"}')
    with pytest.raises(InputError, match="not as Floodway wrote it"):
        read_notes(tmp_path)


def test_notes_of_losses_go_with_the_journal(tmp_path: Path) -> None:
    for start, end in ((0, 10), (90, 110), (200, 210)):
        leave(tmp_path, "s", 0, start, end)
    leave(tmp_path, "t", 0, 0, 10)
    forget_gone(tmp_path, {"s": BatchOffset("s", {0: 100}, {0: 150})})
    assert sorted(note.start for note in left(tmp_path, "s")) == [90, 200]
    assert len(list(left(tmp_path, "t"))) == 1
