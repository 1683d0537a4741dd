"""`floodway top`: a running job in the terminal."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from floodway.cli.arguments import Job, State, find
from floodway.cli.view.output import print_json
from floodway.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from floodway.job.places import JobPlace
    from floodway.job.status.figures import JobTail
    from floodway.job.status.status import Status

STALE_SECONDS = 30.0


def top(
    job: Job,
    state: State = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as one JSON object.")] = False,
) -> None:
    """Show rates, latency against target, keep, loss and load of a running job.

    Of a network of `floodway up`, its folder shows all nodes, and the folder of a node in it that one.

    Example: floodway top clicks
    """
    from rich.console import Console
    from rich.live import Live

    from floodway.job.status.figures import JobTail

    found, tail = find(job, state), JobTail()
    if as_json:
        status = found.status(tail)
        if status is None:
            raise _nothing(found)
        print_json(status.to_dict())
        return
    if once:
        Console().print(_tables(found, tail))
        return
    with Live(_tables(found, tail), refresh_per_second=4) as live:
        while True:
            time.sleep(0.25)
            live.update(_tables(found, tail))


def _tables(job: JobPlace, tail: JobTail) -> Group:
    from rich.console import Group

    whole = job.status(tail)
    if whole is None:
        raise _nothing(job)
    if not job.nodes:
        return Group(table_of(whole, time.time()))
    nodes = [table_of(status, time.time()) for status in job.statuses().values()]
    # A node does not hear of a backfill: only the ledgers know.
    return Group(*nodes, *([f"recovered: {whole.totals.recovered_words}"] if whole.totals.recovered else []))


def _nothing(job: JobPlace) -> InputError:
    return InputError(
        f"{job.place} holds no figures yet", hint="Wait for the job's first micro-batch, or check its name"
    )


def table_of(status: Status, now: float) -> Table:
    """A status as a table; `now` in seconds since 1970."""
    from rich.markup import escape
    from rich.table import Table

    age, process = now - status.time, status.process
    stale = f"  [red](last heard {age:.0f} s ago)[/red]" if age > STALE_SECONDS else ""
    if age < -STALE_SECONDS:
        stale = f"  [red](last heard at a time that is {-age:.0f} s ahead of this clock)[/red]"
    # A node that still starts, or waits for its inputs, has a phase and no figures yet.
    waits = process is not None and process.phase != "running"
    state: str = process.phase if process is not None and waits else status.mode
    if status.participant is not None:
        state = "participant"
    table = Table(title=f"{status.name}  ·  {state}{stale}", show_header=False)
    if process is not None and process.waiting_for:
        table.add_row("waits for", ", ".join(process.waiting_for))
    if not status.places and status.participant is None:
        table.add_row("figures", "none yet")
        return table
    _latency_rows(table, status)
    for at, place in status.places.items():
        rate = place.rates.offered if place.arriving is None else place.arriving
        shown = "" if rate is None else f"{rate:,.0f} tuples/s, "
        if rate is not None or place.keep < 1.0:
            table.add_row(at, f"{shown}keep {place.keep:.1%} {_bar(place.keep)}")
    for name, node in status.nodes.items():
        if node.load is not None:
            of = f" of {node.cpu:g} CPU {_bar(node.load / node.cpu)}" if node.cpu else " CPU"
            table.add_row(f"node {name}", f"planned load {node.load:.2f}{of}")
    if status.loss is not None:
        table.add_row("dropped now", f"{status.loss:.1%} {_bar(status.loss)}")
    if status.mode == "observe":
        if status.would_drop > 0.0:
            table.add_row("would drop", f"{status.would_drop:.1%} {_bar(status.would_drop)}")
        for reason, tuples in status.would_drop_tuples.items():
            table.add_row(f"would drop by {reason}", f"{tuples:,} tuples of the last batch")
    for one in status.keys:
        table.add_row(f"key {escape(one.key)}", f"{one.share:.1%} of the input, keep {one.keep:.1%} {_bar(one.keep)}")
    dropped = ", ".join(f"{count:,} by {reason}" for reason, count in status.totals.dropped.items()) or "none"
    table.add_row("since the start", f"{status.totals.offered:,} tuples offered, dropped: {dropped}")
    if status.totals.recovered:
        table.add_row("recovered", status.totals.recovered_words)
    if status.decision_seen is False:
        table.add_row("decision", "[red]the last batch did not find it[/red]")
    if status.mode == "enforce" and status.decision_until is not None and status.decision_until < time.time():
        since = datetime.fromtimestamp(status.decision_until, UTC)
        table.add_row("decision", f"[red]expired at {since:%Y-%m-%d %H:%M:%S} UTC: batches keep everything[/red]")
    for text in status.warnings:
        table.add_row("warning", f"[red]{text}[/red]")
    if status.reason:
        table.add_row("why", status.reason)
    _participant_rows(table, status)
    return table


def _latency_rows(table: Table, status: Status) -> None:
    from rich.markup import escape

    for name, latency in {"latency": status.latency, **status.outputs}.items():
        if latency.mean is not None and (name != "latency" or not status.outputs):
            shown, target = f"{latency.mean:.2f} s", latency.target
            if target is not None:
                colour = "green" if latency.mean <= 1.1 * target else "red"
                shown = f"[{colour}]{shown}[/{colour}] of {target:g} s {_bar(latency.mean / target)}"
            of = "latency now" if name == "latency" else f"latency {escape(name)} now"
            most = "" if latency.p95 is None else f"\n95% below {latency.p95:.2f} s"
            table.add_row(of, shown + most)
    if status.unreachable and status.floor_seconds is not None:
        table.add_row("target", f"[red]below the floor of {status.floor_seconds:.2f} s[/red]")
    if status.capacity_needed is not None:
        from floodway.job.status.parts import capacity_words

        words = capacity_words(status.capacity_needed, status.executors_more, status.executor_efficiency)
        table.add_row("capacity", words)
    if status.behind is not None:
        colour = "red" if status.behind.catch_up_seconds is None else "green"
        table.add_row("behind", f"[{colour}]{status.behind.words}[/{colour}]")
    if status.accuracy is not None:
        colour = "red" if status.accuracy.held is False else "green"
        table.add_row("accuracy", f"[{colour}]{escape(status.accuracy.words)}[/{colour}]")


def _participant_rows(table: Table, status: Status) -> None:
    """What only a participant of a federation has: whose fragments it runs, and moves."""
    member = status.participant
    if member is None:
        return
    lent = [f"{one.owner}'s {name}" for name, one in member.fragments.items() if one.owner != status.name]
    if lent:
        table.add_row("runs for others", ", ".join(lent))
    for name, fragment in member.fragments.items():
        if fragment.keep < 1.0:
            table.add_row(f"fragment {name}", f"keep {fragment.keep:.1%} {_bar(fragment.keep)}")
    ended = ", ".join(f"{count} {state}" for state, count in member.ended_moves.items())
    table.add_row("moves", f"{ended}, {member.open_moves} under way")
    if member.silent:
        table.add_row("silent", ", ".join(member.silent))


def _bar(share: float, width: int = 24) -> str:
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)
