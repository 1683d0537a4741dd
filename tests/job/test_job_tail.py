"""Files are tail line by line, and from the start again where another run has written them anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from floodway.job.ledger.fold import Fold
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.status.figures import JobTail
from floodway.job.store.store import LocalStore
from tests.dashboard.made_state import CLICKS, MadeJob
from tests.job.ledgers import open_segment


def line(batch: int) -> LedgerLine:
    return LedgerLine("q", batch, "s", "shedder", 10, 4, 6, time_us=batch * 1_000_000)


def summed(tail: JobTail) -> Fold:
    assert tail.has_ledger
    return tail.figures.fold


def test_each_line_is_read_once_and_a_torn_one_is_waited_for(tmp_path: Path) -> None:
    store, tail = LocalStore(tmp_path), JobTail()
    tail.advance([store])
    assert not tail.has_ledger
    Ledger(store).append([line(0), line(1)])
    path = open_segment(store)
    with path.open("ab") as file:
        file.write(line(2).encode()[:20])
    tail.advance([store])
    tail.advance([store])
    assert summed(tail).lines == 2
    with path.open("ab") as file:
        file.write(line(2).encode()[20:])
    tail.advance([store])
    assert summed(tail).lines == 3
    assert summed(tail).differences() == []


def test_a_second_run_in_the_folder_is_summed_from_its_start(tmp_path: Path) -> None:
    """Also where it has written more than the first by the time anybody looks, into a file of the same number."""
    tail = JobTail()
    for first, second in ((40, 3), (3, 40)):
        job = MadeJob(tmp_path / "run", 1_000)
        job.start()
        job.run(first)
        tail.advance([LocalStore(job.root)])
        before = tail.figures
        shutil.rmtree(job.root)
        tail.advance([LocalStore(job.root)])
        assert tail.figures is before, "what was removed is shown until something new is there"
        again = MadeJob(tmp_path / "run", 2_000)
        again.start()
        again.run(second)
        tail.advance([LocalStore(again.root)])
        assert tail.figures is not before
        assert summed(tail).total.offered["clicks"] == second * CLICKS
        assert tail.figures.latencies.count == second * 1_000
        shutil.rmtree(again.root)


def test_one_replaced_node_starts_the_whole_network_over(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "AB"]
    for folder in folders:
        folder.mkdir()
        Ledger(LocalStore(folder)).append([line(0), line(1)])
    tail = JobTail()
    tail.advance(map(LocalStore, folders))
    shutil.rmtree(folders[1] / "ledger")
    Ledger(LocalStore(folders[1])).append([line(7)])
    tail.advance(map(LocalStore, folders))
    assert summed(tail).lines == 3


def test_an_unreadable_line_is_a_difference(tmp_path: Path) -> None:
    store, tail = LocalStore(tmp_path), JobTail()
    Ledger(store).append([line(0)])
    open_segment(store).write_bytes(line(0).encode() + b'{"at":"clicks","bat#####\n' + line(1).encode())
    tail.advance([store])
    assert summed(tail).differences() == ["lines of the ledger that cannot be read: 1"]
