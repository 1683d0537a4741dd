"""Options of `floodway feed`, which writes logs: how much of the past they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from floodway.spark.log import Retention

RetainBytes = Annotated[
    str | None,
    typer.Option(help="Let the oldest tuples go above this size per partition, such as 1GB; default never."),
]
RetainSeconds = Annotated[
    str | None, typer.Option(help="Let tuples go that were written this long ago, such as 2h; default never.")
]


def parse_retention(retain_bytes: str | None, retain_seconds: str | None) -> Retention | None:
    """The retention that the two options ask for; None without any.

    >>> parse_retention("1MB", None)
    Retention(max_bytes=1000000, max_age_seconds=None, unread_from=None)
    """
    from floodway.job.options.flags import parsed
    from floodway.job.options.options import JobOptions
    from floodway.spark.query.retaining import retention_of

    given = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
    return retention_of(JobOptions(**parsed("run", given)))
