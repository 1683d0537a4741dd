"""`floodway validate`: check a network file and list everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.view.output import print_json


def validate(
    network: Annotated[Path, typer.Argument(metavar="NET", help="A network or federation file, YAML or JSON.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: ok, errors (key, line, message).")
    ] = False,
) -> None:
    """Check a network file; every problem is listed with its key, line and remedy. Exit code 2 when wrong.

    Example: floodway validate examples/networks/figure1.yaml
    """
    from floodway.contracts.federation_file import is_federation, load_federation
    from floodway.network.file import load_network

    if is_federation(network):
        found = load_federation(network)
        if as_json:
            print_json({"ok": True, "errors": [], "name": found.name})
            return
        counts = f"{len(found.contracts)} contracts, {len(found.fragments)} fragments"
        typer.echo(f"ok: {found.name}, a federation of {len(found.members)} participants, {counts}")
        return
    # A file that is wrong raises; the command line prints all its problems, as JSON too, and exits with 2.
    loaded = load_network(network)
    if as_json:
        print_json({"ok": True, "errors": [], "name": loaded.name})
        return
    unknown = [op.name for op in loaded.operators.values() if op.cost is None or op.selectivity is None]
    counts = f"{len(loaded.streams)} streams, {len(loaded.operators)} operators on {len(loaded.nodes)} nodes"
    typer.echo(f"ok: {loaded.name}, {counts}, {len(loaded.outputs)} outputs")
    if unknown:
        typer.echo(f"to be measured before planning: {', '.join(unknown)}")
