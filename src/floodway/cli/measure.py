"""`floodway measure`: what each operator costs and passes on, measured alone on real Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.arguments import AsJson, Conf, Master, NetworkFile, above_zero, parse_conf, writable
from floodway.cli.view.output import print_json

if TYPE_CHECKING:
    from floodway.network.model import Network
    from floodway.spark.measure.statistics import Statistics
    from floodway.spark.session.session import Session


def measure(
    network: NetworkFile,
    sample: Annotated[
        Path | None,
        typer.Option(help="A log, or a folder with a log for each stream; else the file's logs, else made up."),
    ] = None,
    tuples: Annotated[int, typer.Option(help="Tuples of each stream to take, the newest.")] = 20_000,
    effort: Annotated[str, typer.Option(help="CPU time of an operator's largest run.", metavar="DURATION")] = "1s",
    write: Annotated[
        Path | None, typer.Option(help="Write the network with costs and selectivities filled in.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    seed: Annotated[int, typer.Option(help="Seed of samples that are made up.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Measure each operator's cost and selectivity, alone, on a sample of what it would receive.

    Functions named by `run:` are looked up from the working directory too. Operators that name none are compared with
    what the file declares for them.

    Example: floodway measure examples/networks/json-clicks.yaml --sample clicks.log --write measured.yaml
    """
    from floodway.job.options import values
    from floodway.network.file import load_network

    net = load_network(network)
    cpu_seconds = values.duration("--effort", effort)
    above_zero("--tuples", tuples, "20000")
    writable("--write", write)
    settings = parse_conf(conf)

    from floodway.spark.measure.samples import logs_of
    from floodway.spark.session.session import LOCAL_MASTER, spark_session

    logs = logs_of(net, sample)  # before Spark starts: a wrong path should not take seconds to tell
    # As `python -m` does, so that functions in the project at hand are found.
    sys.path.insert(0, str(Path.cwd()))
    spark = spark_session(f"floodway-measure-{net.name}", master=master or LOCAL_MASTER, conf=settings)
    try:
        quiet = as_json or not sys.stderr.isatty()
        found = measure_on(spark, net, sample=sample, tuples=tuples, effort=cpu_seconds, seed=seed, quiet=quiet)
    finally:
        spark.stop()
    if write is not None:
        write_network(found.applied(net), write)
    if as_json:
        print_json(
            {
                "network": net.name,
                "samples": {name: None if log is None else str(log) for name, log in logs.items()},
                "operators": {name: item.to_dict() for name, item in found.operators.items()},
                "written": None if write is None else str(write),
            }
        )
        return
    _print(found)
    if write is not None:
        typer.echo(f"\nwritten to {write}")


def measure_on(
    spark: Session, net: Network, *, sample: Path | None, tuples: int, effort: float, seed: int, quiet: bool
) -> Statistics:
    """Take the samples and measure on a session that runs; `quiet` tells nothing on stderr."""
    import numpy as np

    from floodway.spark.measure.calibrate import Effort
    from floodway.spark.measure.samples import load_samples
    from floodway.spark.measure.statistics import measure_network

    samples = load_samples(spark, net, path=sample, tuples=tuples, rng=np.random.default_rng(seed))

    def progress(name: str) -> None:
        if not quiet:
            typer.echo(f"measuring {name} …", err=True)

    return measure_network(spark, net, samples, effort=Effort(seconds=effort), progress=progress)


def write_network(net: Network, path: Path) -> None:
    """As JSON if the file's name says so, else as YAML; where that fails, a file that was there stays."""
    from floodway.job.store.store import LocalStore
    from floodway.network.file import network_to_json, network_to_yaml

    text = network_to_json(net) if path.suffix == ".json" else network_to_yaml(net)
    target = path.resolve()  # what a link leads to, not the link
    LocalStore(target.parent).write(target.name, text.encode())


def _print(found: Statistics) -> None:
    from floodway.network.text import columns, number

    rows: list[tuple[str, ...]] = [("operator", "cost (s/tuple)", "declared", "selectivity", "declared", "")]
    for name, item in found.operators.items():
        declared = item.operator
        rows.append(
            (
                name,
                number(item.cost),
                "–" if declared.cost is None else number(declared.cost),
                number(item.selectivity),
                "–" if declared.selectivity is None else number(declared.selectivity),
                item.note,
            )
        )
    typer.echo("\n".join(columns(rows, indent=0)))
