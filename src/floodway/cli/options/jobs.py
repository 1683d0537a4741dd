"""The argument that names a job, for every command that watches one or switches it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from floodway.job.places import JobPlace

Job = Annotated[
    str, typer.Argument(help="Name of the job, or the folder or URI of its state.", metavar="NAME_OR_PLACE")
]
State = Annotated[
    str | None,
    typer.Option(help="Where to look for the name, if not among this user's jobs.", hidden=True),
]


def find(job: str, state: str | None = None) -> JobPlace:
    """The job of this name or at this place; InputError if there is none."""
    from floodway.job.places import find_job
    from floodway.spark.session.stores import open_store

    return find_job(job, open_store, state)


def find_or_root(job: str) -> str:
    """The place of a job by its name or place, or a folder that holds jobs or will: one may start later."""
    from floodway.job.places import job_names, place_of
    from floodway.spark.session.stores import open_store

    place = place_of(job)
    if place is not None and (Path(place).is_dir() or job_names(open_store(place), open_store)):
        return place
    return find(job).place
