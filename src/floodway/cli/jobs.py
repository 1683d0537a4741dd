"""Finding a running job's files by its name, for `floodway set` and `floodway top`."""

from __future__ import annotations

from pathlib import Path

from floodway.errors import InputError
from floodway.spark.shed_state import ShedFiles, shed_files, state_root


def find_job(name: str, state: Path | None) -> ShedFiles:
    """The folder of a job: the one given, or `name` under the user's state folder; a clear error if it is not there."""
    if state is not None and (state / "status.json").exists():
        return ShedFiles(state)
    files = shed_files(name, state)
    if not files.folder.is_dir():
        root = state or state_root()
        known = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
        raise InputError(
            f"no job {name!r} under {root}",
            hint=f"Known there: {', '.join(known)}" if known else "Start it first, or give its --state folder",
        )
    return files
