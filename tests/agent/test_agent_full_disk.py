"""A sink whose disk is full: one clear error, the checkpoint intact, and a restart that goes on from there."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.runner import RunError, RunOptions, run_network
from floodway.job.ledger.ledger import Ledger
from floodway.job.status.status import Status
from floodway.network.file import parse_network
from floodway.spark.audit.run import audit
from floodway.spark.query.layout import RunLayout
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

pytestmark = pytest.mark.spark


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB; only root may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"NO FULL DISK, only root may mount one: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_is_one_clear_error_and_a_restart_continues(
    spark: Session, tmp_path: Path, small_disk: Path
) -> None:
    network = parse_network(
        f"""
        version: 1
        name: full-disk
        streams: {{s: {{max_rate: 20000}}}}
        nodes: {{A: {{cpu: 1.0}}}}
        operators: {{pass: {{node: A, from: s, cost: 0.00001}}}}
        outputs: {{q: {{from: pass, sink: {small_disk / "q"}}}}}
        """
    )
    layout = RunLayout(tmp_path / "run")

    def offered() -> int:
        return Ledger(layout.store).fold().total.offered["s"]

    def run(rate: float, more_than: float = math.inf) -> None:
        """Until more tuples than these are in the ledger."""
        ended = Event()

        def look(status: Status) -> None:
            if offered() > more_than:
                ended.set()

        options = RunOptions(
            seconds=PATIENCE_SECONDS, root=layout.root, feeds={"s": Feed(rate=rate)}, settle_seconds=0.0,
            progress=look, ended=ended,
        )  # fmt: skip
        run_network(network, options, spark)
        assert ended.is_set()

    with pytest.raises(RunError, match="the disk is full") as caught:
        run(20_000.0)  # half a megabyte is full within seconds
    assert "--state" in str(caught.value.hint)
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    run(100.0, more_than=offered())
    found = audit(network, layout)
    assert found.differences == ()
