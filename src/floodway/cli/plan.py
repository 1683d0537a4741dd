"""`floodway plan`: what to drop, and where, at given rates."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.cli.arguments import AsJson
from floodway.cli.view.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodway.network.model import Network
    from floodway.planning.plan import Objective, Plan, Planner
    from floodway.planning.windows.window_shapes import DropKind

_LOOKUPS = 200


def plan(
    network: Annotated[Path, typer.Argument(metavar="NET", help="A network file, YAML or JSON.")],
    rates: Annotated[str, typer.Option(help="Rate of every stream, such as s1=100,s2=5k/s.")],
    planner: Annotated[str, typer.Option(help="exact, solver, solver-w, fit or dfit.")] = "exact",
    epsilon: Annotated[
        float, typer.Option(help="Relative error allowed against the optimum (all planners but exact).")
    ] = 0.05,
    objective: Annotated[str, typer.Option(help="throughput, fair or tiers.")] = "throughput",
    headroom: Annotated[
        float, typer.Option(help="Share of every resource that may be planned for (the papers: 0.95).")
    ] = 1.0,
    workload: Annotated[
        Path | None, typer.Option(help="A CSV of rates that were seen, a column a stream (fit and solver-w).")
    ] = None,
    scale: Annotated[float, typer.Option(help="Plan for this multiple of the capacity.")] = 1.0,
    save: Annotated[Path | None, typer.Option(help="Save the prepared plans to this file.")] = None,
    load: Annotated[Path | None, typer.Option(help="Use plans saved before instead of preparing them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan drops for these rates: keeps per drop location, score against the optimum, loads, throughput.

    Example: floodway plan examples/networks/figure1.yaml --rates s1=1,s2=1 --planner solver --epsilon 0.05
    """
    from floodway.job.options import values
    from floodway.job.options.options import JobOptions
    from floodway.network.file import load_network
    from floodway.network.file_checks import check_rates
    from floodway.planning import plan_file
    from floodway.planning.factory import check_choice, make_planner, planner_class
    from floodway.planning.plan import Objective
    from floodway.planning.program import Program
    from floodway.planning.windows.window_choice import WindowChooser
    from floodway.planning.windows.window_shapes import windowed_plan
    from floodway.spark.query.fragment_windows import drop_kinds, timeless_streams

    goal = parse_objective(objective)
    check_choice(planner, goal, workload)
    network_read = load_network(network)
    given = values.rates("--rates", rates)
    check_rates(network_read, given)
    planner_class(planner)  # imports it: loading code is no part of building plans
    started = time.perf_counter()
    if load is None:
        chosen = make_planner(
            network_read, planner, objective=goal, epsilon=epsilon, headroom=headroom, workload=workload
        )
    elif workload is not None:
        raise InputError(
            "--workload changes nothing about plans that were saved", hint="Leave out --load or --workload"
        )
    else:
        chosen = plan_file.load(load, Program(network_read, headroom))
        if (chosen.name, goal.value) != (planner, "throughput"):
            raise InputError(
                f"--load {load} holds plans of the {chosen.name!r} planner for throughput",
                hint=f"Add --planner {chosen.name}, or leave --load out",
            )
    build_seconds = time.perf_counter() - started
    best = make_planner(network_read, "exact", objective=goal, headroom=headroom).plan(given, scale)
    kinds = drop_kinds(network_read, timeless_streams(network_read, JobOptions()))
    shapes = {at: kind.shape for at, kind in kinds.items() if kind.shape is not None}
    found = chosen.plan(given, scale)
    if shapes and goal is Objective.THROUGHPUT:
        chooser = WindowChooser(network_read, shapes, capacity=headroom * scale)
        found = chooser.choose(lambda rates: chosen.plan(rates, scale), given).plan
    found = windowed_plan(network_read, found, shapes)
    if save is not None:
        plan_file.save(chosen, save)
    body = _body(chosen, found, best.score, build_seconds, _lookup_microseconds(chosen, found, scale), kinds)
    if as_json:
        print_json(body)
    else:
        _print(network_read, chosen, found, body)


def parse_objective(name: str) -> Objective:
    """One of the objectives, or a clear error."""
    from floodway.errors import suggestion
    from floodway.planning.plan import Objective

    try:
        return Objective(name)
    except ValueError:
        known = [objective.value for objective in Objective]
        raise InputError(f"--objective {name!r} is unknown", hint=suggestion(name, known)) from None


def tie_lines(found: Plan) -> list[str]:
    """Which choices of a plan are arbitrary, for people."""
    return [
        f"arbitrary: {at[0]} earns nothing; keeping it or not is the same"
        if len(at) == 1
        else f"arbitrary: {' and '.join([', '.join(at[:-1]), at[-1]])} earn the same for what they take; divided evenly"
        for at in found.ties
    ]


def _lookup_microseconds(planner: Planner, found: Plan, scale: float) -> float:
    import numpy as np

    vector = np.array([found.rates[name] for name in planner.network.streams])
    taken = []
    for _ in range(_LOOKUPS):
        started = time.perf_counter()
        planner.keeps(vector, scale)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6


def _body(
    planner: Planner,
    found: Plan,
    optimum: float,
    build_seconds: float,
    lookup_microseconds: float,
    kinds: Mapping[str, DropKind],
) -> dict[str, Any]:
    size = "rows" if planner.name in ("fit", "dfit") else "regions"
    body: dict[str, Any] = {
        "planner": planner.name,
        "overloaded": found.overloaded,
        "score": found.score,
        "optimum": optimum,
        "drops": [{"at": at, "keep": keep, **_kind(kinds.get(at), keep)} for at, keep in found.drops.items()],
        "ties": [list(group) for group in found.ties],
        "load": dict(found.load),
        "throughput": dict(found.throughput),
        size: planner.size,
        "build_seconds": build_seconds,
        "lookup_microseconds": lookup_microseconds,
    }
    for name in ("epsilon", "achieved_epsilon"):
        value = getattr(planner, name, None)
        if value is not None:
            body[name] = float(value)
    return body


def _kind(kind: DropKind | None, keep: float) -> dict[str, Any]:
    """How a location drops: tuples at random, or windows, and then the share of them that is kept."""
    from floodway.planning.windows.window_keeps import window_ppm
    from floodway.units import PPM

    if kind is None or kind.shape is None:
        return {"kind": "random", **({"reason": kind.reason} if kind and kind.reason else {})}
    shape = kind.shape
    kept = window_ppm(shape, round(keep * PPM)) / PPM
    return {"kind": "window", "size": shape.size_us / 1e6, "slide": shape.slide_us / 1e6, "windows": kept}


def kind_lines(drops: list[dict[str, Any]]) -> list[str]:
    """Which drops go by windows, and which do not although an aggregate is below, for people."""
    found = []
    for drop in drops:
        if drop["kind"] == "window":
            windows = f"windows of {drop['size']:g} s by {drop['slide']:g} s"
            found.append(f"{drop['at']} drops whole {windows}: {drop['windows']:.2%} of them are kept")
        elif "reason" in drop:
            found.append(f"{drop['at']} drops single tuples, so windows below are not exact: {drop['reason']}")
    return found


def _print(network: Network, planner: Planner, found: Plan, body: dict[str, Any]) -> None:
    from floodway.network.text import columns, number

    drops = [("drop at", "keep", "drop")]
    drops += [(at, f"{keep:.2%}", f"{1 - keep:.2%}") for at, keep in found.drops.items()]
    nodes = [("node", "load", "of capacity")]
    nodes += [(n, number(used), f"{used / network.nodes[n].cpu:.0%}") for n, used in found.load.items()]
    outputs = [("output", "throughput", "weight")]
    for name, rate in found.throughput.items():
        outputs.append((name, f"{number(rate)}/s", number(network.outputs[name].weight)))
    if not found.overloaded:
        typer.echo("not overloaded: nothing is dropped\n")
    elif not found.drops:
        typer.echo("nothing is dropped\n")
    else:
        typer.echo("\n".join([*columns(drops, indent=0), *kind_lines(body["drops"]), *tie_lines(found), ""]))
    typer.echo("\n".join([*columns(nodes, indent=0), "", *columns(outputs, indent=0), ""]))
    gap = 1 - found.score / body["optimum"] if body["optimum"] > 0 else 0.0
    error = f" ({gap:.2%} below)" if gap > 1e-9 else ""
    what = "row" if "rows" in body else "region"
    count = body[f"{what}s"]
    size = f"{count} {what}" if count == 1 else f"{count} {what}s"
    typer.echo(f"score {number(found.score)}, optimum {number(body['optimum'])}{error}")
    typer.echo(
        f"{planner.name}: {size}, built in {body['build_seconds']:.3f} s, look-up {body['lookup_microseconds']:.1f} µs"
    )
