"""`floodway explain`: a network as text, and as a picture of boxes and arrows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodway.cli.plan import tie_lines
from floodway.cli.view.output import print_json
from floodway.errors import InputError
from floodway.json_text import load_json

if TYPE_CHECKING:
    from floodway.network.fair import FairResult
    from floodway.network.model import Network
    from floodway.planning.plan import Plan


def _named(plan: str) -> str:
    """The next option is no planner's name: without this, the values after it would be the ones that are refused."""
    if plan.startswith("-"):
        raise InputError(
            f"--plan wants a name before {plan}", hint="Write `floodway explain net.yaml --plan exact --rates s1=1`"
        )
    return plan


def explain(
    network: Annotated[Path, typer.Argument(metavar="NET", help="A network file, YAML or JSON.")],
    rates: Annotated[str, typer.Option(help="Rate of every stream, such as s1=100,s2=5k/s.")] = "",
    keep: Annotated[str, typer.Option(help="Share kept at drop locations, such as 's1=0.2,a1->b1=0.5'.")] = "",
    plan_json: Annotated[
        str, typer.Option(help="Take the keeps from what `floodway plan --json` printed (- for stdin).")
    ] = "",
    plan: Annotated[
        str,
        typer.Option(
            help="Plan drops for --rates with this planner, such as exact; with --state: a plan of that run.",
            callback=_named,
        ),
    ] = "",
    state: Annotated[
        Path | None, typer.Option(help="With --plan: the folder of the run, or of one of its nodes.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture: FILE.svg or FILE.png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: the network and what flows.")] = False,
) -> None:
    """Print a network as text and draw it; with rates also what flows under the fair scheduler.

    With --plan the state under that plan is shown and drawn.

    Example: floodway explain examples/networks/figure1.yaml --rates s1=1,s2=1 --plan exact --picture figure1.svg
    """
    from floodway.job.options import values
    from floodway.network.fair import fair
    from floodway.network.file import load_network, network_to_dict
    from floodway.network.file_checks import check_keeps, check_rates, require_costs
    from floodway.network.text import network_text

    loaded = load_network(network)
    if state is not None and not plan:
        raise InputError(
            "--state needs --plan", hint="Write `floodway explain net.yaml --plan 8f3a01bc --state runs/net`"
        )
    used = _plan_of_run(state, plan) if state is not None else None
    # A node plans for links too, which are no streams of the whole network.
    chosen = {at: share for at, share in used["keeps"].items() if at in loaded.drop_locations} if used else {}
    made = _made_plan(loaded, plan, rates) if plan and state is None else None
    planned = _keeps_of_plan(plan_json) if plan_json else dict(made.drops) if made is not None else chosen
    keeps = {**planned, **values.shares("--keep", keep)}
    check_keeps(loaded, keeps)
    given: dict[str, float] | None = None
    result: FairResult | None = None
    if rates or (used and set(used["rates"]) == set(loaded.streams)):
        given = values.rates("--rates", rates) if rates or not used else dict(used["rates"])
        check_rates(loaded, given)
        require_costs(loaded)
        result = fair(loaded, given, keeps)
    if picture is not None:
        from floodway.network.picture import save_picture

        save_picture(loaded, picture, rates=given, keeps=keeps, result=result)
    if not as_json:
        if used is not None:
            _print_plan(used)
        typer.echo(network_text(loaded, rates=given, keeps=keeps, result=result))
        for line in () if made is None else tie_lines(made):
            typer.echo(line)
        if picture is not None:
            typer.echo(f"\npicture written to {picture}")
        return
    body: dict[str, object] = {"network": network_to_dict(loaded), "drop_locations": loaded.drop_locations}
    if made is not None:
        body["ties"] = [list(group) for group in made.ties]
    if used is not None:
        body["plan"] = dict(used)
    if result is not None:
        body |= {"load": dict(result.load), "throughput": dict(result.throughput), "score": result.score}
    print_json(body)


def _made_plan(network: Network, planner: str, rates: str) -> Plan:
    from floodway.job.options import values
    from floodway.network.file_checks import check_rates
    from floodway.planning.factory import PLANNERS, make_planner

    if planner not in PLANNERS:
        raise InputError(
            f"--plan {planner!r} is no planner; it is the name of a run's plan only with --state",
            hint=f"Use one of {', '.join(PLANNERS)}, or add --state runs/net",
        )
    if not rates:
        raise InputError(
            "--plan needs --rates to plan for", hint="Write `floodway explain net.yaml --plan exact --rates s1=1`"
        )
    given = values.rates("--rates", rates)
    check_rates(network, given)
    return make_planner(network, planner).plan(given)


def _plan_of_run(state: Path, plan: str) -> Mapping[str, Any]:
    from floodway.agent.loop.plan_book import find_plan

    return find_plan(state, plan)


def _print_plan(plan: Mapping[str, Any]) -> None:
    when = datetime.fromtimestamp(plan["time_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    typer.echo(f"plan {plan['id']}, issued {when}, mode {plan['mode']}")
    for name, why in plan["why"].items():
        typer.echo(f"  {name}: {why}")


def _keeps_of_plan(source: str) -> dict[str, float]:
    """The drops in the JSON of `floodway plan`."""
    hint = "Write one with floodway plan NET --rates … --json > plan.json"
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return {str(drop["at"]): float(drop["keep"]) for drop in load_json(text)["drops"]}
    except OSError as error:
        raise InputError(f"--plan-json: {source} cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        message = f"--plan-json: {source} is not the JSON of a plan with drops (at, keep)"
        raise InputError(message, hint=hint) from error
