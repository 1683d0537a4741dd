"""The supervisor with real processes: what dies comes back, what ends leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from floodway.agent.node import supervisor
from floodway.agent.node.supervisor import ProcessSpec, Supervisor
from tests.patience import wait_until


def program(tmp_path: Path, code: str, name: str = "child") -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", code), tmp_path / f"{name}.log")


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and was not waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SLEEPS = "import time; time.sleep(600)"
HAS_CHILD = (
    "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
)
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def test_a_killed_child_is_started_again_and_counted(tmp_path: Path) -> None:
    with Supervisor([program(tmp_path, SLEEPS)]) as supervisor:
        supervisor.start()
        first = supervisor.pid("child")
        assert first is not None and supervisor.poll() == []
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: supervisor.poll() == ["child"])
        assert supervisor.restarts == {"child": 1}
        second = supervisor.pid("child")
        assert second is not None and second != first


def test_a_restart_waits_until_the_backoff_is_over_and_longer_each_time(tmp_path: Path) -> None:
    now = [100.0]
    with Supervisor([program(tmp_path, "raise SystemExit(3)")], clock=lambda: now[0]) as supervisor:
        supervisor.start()
        waits = []
        for _ in range(4):
            wait_until(lambda: supervisor.poll() == [] and supervisor.pid("child") is None)
            begun = now[0]
            while not supervisor.poll():
                now[0] += 0.125
            waits.append(now[0] - begun)
        assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_start_that_the_machine_refuses_is_tried_again(tmp_path: Path) -> None:
    """A full disk, or no memory for one node, must not end the others."""
    now = [100.0]
    child, other = program(tmp_path, SLEEPS), program(tmp_path, SLEEPS, "other")
    with Supervisor([child, other], clock=lambda: now[0]) as supervisor:
        supervisor.start()
        first, second = supervisor.pid("child"), supervisor.pid("other")
        assert first is not None and second is not None
        child.output.unlink()
        child.output.mkdir()  # what it prints cannot be written
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: supervisor.poll() == [] and supervisor.pid("child") is None)
        for _ in range(1_100):  # three hours: two to the power of so many is no number any more
            now[0] += 10.0
            assert supervisor.poll() == [] and supervisor.pid("other") == second
        child.output.rmdir()
        now[0] += 10.0
        assert supervisor.poll() == ["child"] and supervisor.restarts == {"child": 1, "other": 0}


def test_what_a_dead_child_had_started_is_killed_before_it_comes_back(tmp_path: Path) -> None:
    with Supervisor([program(tmp_path, HAS_CHILD)]) as supervisor:
        supervisor.start()
        wait_until(lambda: supervisor.last_words("child") != "")
        grandchild = int(supervisor.last_words("child"))
        pid = supervisor.pid("child")
        assert pid is not None and alive(grandchild)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: supervisor.poll() == ["child"])
        assert not alive(grandchild)


@pytest.mark.parametrize("code", [SLEEPS, DEAF, HAS_CHILD])
def test_stopping_leaves_no_process(tmp_path: Path, code: str) -> None:
    supervisor = Supervisor([program(tmp_path, code)])
    supervisor.start()
    pid = supervisor.pid("child")
    wait_until(lambda: code == SLEEPS or supervisor.last_words("child") != "")
    words = supervisor.last_words("child")
    supervisor.stop(grace_seconds=0.5)
    assert pid is not None and not alive(pid)
    wait_until(lambda: not words.isdigit() or not alive(int(words)))
    assert supervisor.pid("child") is None


def test_what_a_program_prints_for_years_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "OUTPUT_BYTES", 2_000)
    chatty = program(tmp_path, "import itertools, time\nfor n in itertools.count(): print(n, 'x' * 50, flush=True)")
    with Supervisor([chatty]) as running:
        running.start()
        moved = tmp_path / "child.log.1"
        for _ in range(20):
            wait_until(lambda: chatty.output.stat().st_size > 2_000)
            assert running.poll() == []
            assert moved.exists()
    # What was printed while it was copied may be in neither; what is there is whole lines of the newest.
    assert "x" * 50 in running.last_words("child") + moved.read_text()
