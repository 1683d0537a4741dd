"""`floodway set`: switch the mode of a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodway.errors import InputError


def set(
    name: Annotated[str, typer.Argument(help="Name of a shed or of a network that runs.")],
    mode: Annotated[str, typer.Option(help="enforce, observe (decide, drop nothing) or off (the kill switch).")],
    state: Annotated[Path | None, typer.Option(help="Folder of the job's state, if not the default.")] = None,
) -> None:
    """Switch a running job between enforce, observe and off; it takes effect with the next micro-batch.

    A shed is found by its name; a network of `floodway run` or `floodway up` by its --state folder too. Of `up` the
    name of a node switches that one, the name of the network all of them.

    Example: floodway set clicks --mode off
    """
    from floodway.agent.loop.run_files import saved_status
    from floodway.agent.watch.statuses import has_mode
    from floodway.cli.jobs import find_jobs
    from floodway.job.shed_state import checked_mode

    checked_mode(mode)
    jobs = find_jobs(name, state)
    for found, files in jobs.items():
        if not has_mode(saved_status(files.folder)):
            raise InputError(
                f"{found} is a participant of a federation and has no mode",
                hint="It sheds what no partner takes; stop it to stop that",
            )
    for found, files in jobs.items():
        files.write_mode(mode)
        typer.echo(f"{found}: {mode} from the next micro-batch on")
