"""`floodway set`: switch the mode of a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from floodway.cli.arguments import Job, State, find


def set(
    job: Job,
    mode: Annotated[str, typer.Option(help="enforce, observe (decide, drop nothing) or off (the kill switch).")],
    state: State = None,
) -> None:
    """Switch a running job between enforce, observe and off; it takes effect with the next micro-batch.

    A network of `floodway up` is switched as a whole by its folder, one node by the node's folder in it.

    Example: floodway set clicks --mode off
    """
    from floodway.job.decision import checked_mode

    checked_mode(mode)
    found = find(job, state)
    found.switch(mode)
    for name in found.nodes or [found.name]:
        typer.echo(f"{name}: {mode} from the next micro-batch on")
