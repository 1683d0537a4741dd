"""Tuples on the disk are the user's own: folders that Floodway makes can be entered by nobody else."""

from __future__ import annotations

import stat
from pathlib import Path

import pyarrow as pa

from floodway.agent.federation.participant_journal import Journal
from floodway.agent.loop.run_files import locked
from floodway.cli.view.page import watched
from floodway.job.options.options import JobOptions
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.journal import note_tasks
from floodway.spark.source.notes import leave


def open_to_others(root: Path) -> list[Path]:
    """Files and folders that other users can get at: through folders that all let them in."""
    found = []
    waiting = [root]
    while waiting:
        path = waiting.pop()
        if path.stat().st_mode & (stat.S_IROTH | stat.S_IXOTH):
            found.append(path)
            waiting += path.iterdir() if path.is_dir() else []
    return found


def test_logs_checkpoints_and_notes_are_the_users_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # whatever folder the user gives
    log = create_log(tmp_path / "outputs" / "q", "id bigint")
    with LogWriter(log.path) as writer:
        writer.append(pa.table({"id": [1, 2]}), tag="q:0:0")
    note_tasks(tmp_path / "checkpoints" / "A.main", 1)
    leave(tmp_path / "malformed", "s", 0, 0, 5)
    with locked(tmp_path / "state"):
        pass
    Journal(tmp_path / "member" / "state" / "federation.sqlite", "A").close()
    with watched(tmp_path / "run", JobOptions(otlp="http://127.0.0.1:9")):
        (tmp_path / "run" / "status.json").touch()
    assert open_to_others(tmp_path) == [tmp_path]


def test_a_folder_that_somebody_shares_stays_shared(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    create_log(shared, "id bigint")
    assert shared.stat().st_mode & 0o777 == 0o755
