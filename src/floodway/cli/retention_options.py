"""Options of commands that write logs: how much of the past they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.checks import above_zero

if TYPE_CHECKING:
    from floodway.spark.log import Retention

RetainBytes = Annotated[
    int | None, typer.Option(help="Let the oldest tuples of a log go above this many bytes a partition; default never.")
]
RetainSeconds = Annotated[
    float | None, typer.Option(help="Let tuples of a log go that were written this long ago; default never.")
]


def parse_retention(retain_bytes: int | None, retain_seconds: float | None) -> Retention | None:
    """The retention that the two options ask for; None without any.

    >>> parse_retention(1_000_000, None)
    Retention(max_bytes=1000000, max_age_seconds=None, unread_from=None)
    """
    from floodway.spark.log import Retention

    above_zero("--retain-bytes", retain_bytes, "1000000000")
    above_zero("--retain-seconds", retain_seconds, "86400")
    if retain_bytes is None and retain_seconds is None:
        return None
    return Retention(max_bytes=retain_bytes, max_age_seconds=retain_seconds)


def retention_arguments(retention: Retention | None) -> list[str]:
    """The same options again, for a process that is started.

    >>> retention_arguments(parse_retention(1_000_000, 60.0))
    ['--retain-bytes=1000000', '--retain-seconds=60.0']
    """
    if retention is None:
        return []
    given = {"--retain-bytes": retention.max_bytes, "--retain-seconds": retention.max_age_seconds}
    return [f"{option}={value}" for option, value in given.items() if value is not None]
