"""Facts of batches, for as long as somebody may want the dropped tuples back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from floodway.job.ledger import facts
from floodway.job.ledger.facts import BatchFacts, FactsLog, OffsetRange
from floodway.job.store import line_log
from floodway.job.store.line_log import FileLog
from floodway.job.store.store import LocalStore


def one(batch: int) -> BatchFacts:
    return BatchFacts(
        "q", batch, 1_000_000 * batch, "enforce", 10, 4, 400_000, 7,
        threshold=0.5, epochs=((1, 2, 3),), quotas=((4, 5),), skip={"clicks": (6, 7)},
        ranges=(OffsetRange("clicks", 0, 10 * batch, 10 * batch + 10),),
    )  # fmt: skip


def test_facts_are_read_as_they_were_written_each_batch_once(tmp_path: Path) -> None:
    for _ in range(2):
        log = FactsLog(LocalStore(tmp_path))
        for batch in range(5):
            log.add(one(batch))
    assert list(FactsLog(LocalStore(tmp_path)).read()) == [one(batch) for batch in range(5)]


def test_the_first_facts_of_a_start_cost_no_more_in_an_old_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_log, "SEGMENT_BYTES", 2_000)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(facts, "KEPT_SEGMENTS", 20)
    log = FactsLog(LocalStore(tmp_path))
    for batch in range(300):
        log.add(one(batch))
    read: list[int] = []
    real = FileLog._read

    def counting(self: FileLog, begin: int, offset: int) -> Any:
        for position, part in real(self, begin, offset):
            read.append(len(part))
            yield position, part

    monkeypatch.setattr(FileLog, "_read", counting)
    again = FactsLog(LocalStore(tmp_path))
    again.add(one(300))
    assert sum(read) <= 2 * 2_000
    batches = [found.batch for found in again.read()]
    assert batches == list(range(batches[0], 301)) and batches[0] > 0
    assert len(list((tmp_path / "facts").iterdir())) <= 21
