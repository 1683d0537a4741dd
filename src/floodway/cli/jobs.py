"""Finding a running job's files by its name, for `floodway set` and `floodway top`."""

from __future__ import annotations

from pathlib import Path

from floodway.agent.loop.run_files import node_folders
from floodway.errors import InputError
from floodway.job.shed_state import ShedFiles, shed_files, state_root


def find_jobs(name: str, state: Path | None) -> dict[str, ShedFiles]:
    """The files of a job by name: one entry, or one for each node of a network whose nodes are processes.

    `state` is the job's own folder, or one that holds a folder of that name; else the user's state folder is searched.
    Of a network of processes the name of a node finds that one, any other name all of them.
    """
    if state is not None and (state / "status.json").exists():
        return {name: ShedFiles(state)}
    inside = [] if state is None else [path for path in node_folders(state) if (path / "status.json").exists()]
    if nodes := {path.name: ShedFiles(path) for path in inside}:
        return {name: nodes[name]} if name in nodes else nodes
    files = shed_files(name, state)
    if not files.folder.is_dir():
        root = state or state_root()
        known = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
        raise InputError(
            f"no job {name!r} under {root}",
            hint=f"Known there: {', '.join(known)}" if known else "Start it first, or give its --state folder",
        )
    return {name: files}
