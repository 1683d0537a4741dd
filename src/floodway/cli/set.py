"""`floodway set`: switch the mode of a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def set(
    name: Annotated[str, typer.Argument(help="Name of a shed or of a network that runs.")],
    mode: Annotated[str, typer.Option(help="enforce, observe (decide, drop nothing) or off (the kill switch).")],
    state: Annotated[Path | None, typer.Option(help="Folder of the job's state, if not the default.")] = None,
) -> None:
    """Switch a running job between enforce, observe and off; it takes effect with the next micro-batch.

    A shed is found by its name; a network that `floodway run` runs by its --state folder too.

    Example: floodway set clicks --mode off
    """
    from floodway.cli.jobs import find_job

    files = find_job(name, state)
    files.write_mode(mode)
    typer.echo(f"{name}: {mode} from the next micro-batch on")
