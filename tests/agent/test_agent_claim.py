"""A state folder belongs to one network and to one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from floodway.agent.loop.run_files import LOCK, claimed, save_network
from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.store.store import LocalStore
from floodway.network.file import load_network

NETWORKS = Path(__file__).parents[2] / "examples" / "networks"
FIGURE1, SPLIT = load_network(NETWORKS / "figure1.yaml"), load_network(NETWORKS / "split.yaml")
HOLD = """
import sys
from pathlib import Path
from floodway.agent.loop.run_files import claimed
from floodway.network.file import load_network
with claimed(Path(sys.argv[1]), load_network(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_told_who_holds_the_folder_until_that_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), str(NETWORKS / "figure1.yaml")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=f"is in use by process {other.pid}"),
            claimed(tmp_path, FIGURE1),
        ):
            pass
        other.kill()
        other.wait()
    with claimed(tmp_path, FIGURE1):
        assert (tmp_path / LOCK).read_text() != f"{other.pid}\n"


def test_the_same_run_may_come_back(tmp_path: Path) -> None:
    for _ in range(2):
        with claimed(tmp_path / "new", FIGURE1):
            save_network(tmp_path / "new", FIGURE1)


def test_another_networks_folder_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    save_network(tmp_path, SPLIT)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(InputError, match=f"a run of the network '{SPLIT.name}', not of 'figure1'"):
        claimed(tmp_path, FIGURE1).__enter__()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_run_and_up_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "A").mkdir(parents=True)
    with pytest.raises(InputError, match="a run of `floodway up`"):
        claimed(tmp_path, FIGURE1, "run").__enter__()
    with claimed(tmp_path, FIGURE1, "up"):
        pass
    other = tmp_path / "other"
    Ledger(LocalStore(other)).append([LedgerLine("q", 0, "s", "shedder", 1, 1, 0)])
    with pytest.raises(InputError, match="a run of `floodway run`"):
        claimed(other, FIGURE1, "up").__enter__()
