"""The argument that names a job, for every command that watches one or switches it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Job = Annotated[str, typer.Argument(help="Name of the job, or the folder of its state.", metavar="NAME_OR_PLACE")]
State = Annotated[
    Path | None,
    typer.Option(help="Where to look for the name, if not among this user's jobs.", hidden=True),
]
