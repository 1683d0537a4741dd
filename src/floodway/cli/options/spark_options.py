"""Options of commands that start Spark: which master, and settings of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

Master = Annotated[
    str | None, typer.Option(help="Spark's master, such as spark://host:7077 or yarn; default this machine.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(help="A Spark setting key=value, such as spark.jars.packages=…; may be repeated."),
]


def parse_conf(pairs: Iterable[str] | None) -> dict[str, str]:
    """Read `key=value` settings of Spark.

    >>> parse_conf(["spark.driver.memory=1g"])
    {'spark.driver.memory': '1g'}
    """
    from floodway.job.options.values import settings

    found: dict[str, str] = settings("--conf")("\n".join(pairs or ()))
    return found
