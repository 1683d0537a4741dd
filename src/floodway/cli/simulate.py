"""`floodway simulate`: loads and throughput under the fair scheduler, with or without drops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.view.output import print_json


def simulate(
    network: Annotated[Path, typer.Argument(metavar="NET", help="A network file, YAML or JSON.")],
    rates: Annotated[str, typer.Option(help="Rate of every stream, such as s1=100,s2=5k/s.")],
    keep: Annotated[str, typer.Option(help="Share kept at drop locations, such as 's1=0.2,a1->b1=0.5'.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: load, throughput, node_throughput, score.")
    ] = False,
) -> None:
    """What happens at these rates when overloaded nodes serve their inputs round-robin.

    Example: floodway simulate examples/networks/figure1.yaml --rates s1=1,s2=1 --keep s1=0.2,s2=0.4
    """
    from floodway.job.options import values
    from floodway.network.fair import fair
    from floodway.network.file import load_network
    from floodway.network.file_checks import check_keeps, check_rates, require_costs
    from floodway.network.text import columns, number

    loaded = load_network(network)
    given = values.rates("--rates", rates)
    keeps = values.shares("--keep", keep)
    check_rates(loaded, given)
    check_keeps(loaded, keeps)
    require_costs(loaded)
    result = fair(loaded, given, keeps)
    if as_json:
        print_json(
            {
                "load": dict(result.load),
                "throughput": dict(result.throughput),
                "node_throughput": {node: dict(rates) for node, rates in result.node_throughput.items()},
                "score": result.score,
            }
        )
        return
    nodes = [("node", "load", "of capacity", "throughput")]
    for name, load in result.load.items():
        emitted = ", ".join(f"{op} {number(rate)}/s" for op, rate in result.node_throughput[name].items())
        nodes.append((name, number(load), f"{load / loaded.nodes[name].cpu:.0%}", emitted))
    outputs = [("output", "throughput", "weight")]
    for name, rate in result.throughput.items():
        outputs.append((name, f"{number(rate)}/s", number(loaded.outputs[name].weight)))
    typer.echo("\n".join([*columns(nodes, indent=0), "", *columns(outputs, indent=0)]))
    typer.echo(f"\nscore {number(result.score)}")
