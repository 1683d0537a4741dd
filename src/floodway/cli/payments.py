"""`floodway payments`: who ran what for whom at which price, from a participant's journal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from floodway.cli.arguments import AsJson
from floodway.cli.view.output import print_json


def payments(
    state: Annotated[Path, typer.Argument(help="The --state folder of a participant.", metavar="STATE")],
    as_json: AsJson = False,
) -> None:
    """Show a participant's moves, payments and penalties: who ran what for whom at which price.

    Example: floodway payments state/A
    """
    from floodway.agent.federation.participant_journal import read_journal
    from floodway.agent.federation.settlement import settled_sums

    journal = read_journal(state)
    try:
        entries = journal.entries()
        settled = settled_sums(journal)
        moves = [_move(row, entries, settled) for row in journal.moves()]
        body = {
            "participant": journal.participant,
            "moves": moves,
            "entries": [
                {"id": one.entry.id, "move": one.move, "payer": one.entry.payer, "payee": one.entry.payee}
                | {"amount": one.entry.amount, "reason": str(one.entry.reason), "start": one.start, "end": one.entry.at}
                | {"agreed": one.agreed, "disputed": one.disputed, "keep": one.keep, "delay_seconds": one.delay_seconds}
                for one in entries
            ],
            "settled": settled,
            "balances": journal.balances(),
            "offers": journal.offers(),
            "leases": journal.leases(),
        }
    finally:
        journal.close()
    if as_json:
        print_json(body)
    else:
        _print(body)


def _move(row: Any, entries: list[Any], settled: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [one for one in entries if one.move == row.id]
    sums = [(one["reason"], one["amount"]) for one in settled if one["move"] == row.id]
    owed = [*sums, *((str(one.entry.reason), one.entry.amount) for one in mine)]
    paid = sum(amount for reason, amount in owed if reason == "load")
    outages = [one.entry.at - one.start for one in mine if one.entry.id.endswith("/outage")]
    return {
        "id": row.id,
        "giver": row.giver,
        "taker": row.taker,
        "fragments": sorted(row.units),
        "units": sum(row.units.values()),
        "price": row.price,
        "state": row.state,
        "at": row.at,
        "ended": row.ended,
        "paid": paid,
        "penalties": sum(amount for _, amount in owed) - paid,
        "outage_seconds": max(outages, default=0.0),
        "seconds": dict(row.seconds),
        "note": row.note,
    }


def _print(body: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("move", "when", "ran by", "for", "what", "price", "paid", "penalties", "state", "moved in")
    for one in body["moves"]:
        when = datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        phases = " + ".join(f"{name} {taken:.2f} s" for name, taken in one["seconds"].items())
        ended = "" if one["ended"] is None else ", over"
        table.add_row(
            *(one["id"], when, one["taker"], one["giver"], ", ".join(one["fragments"]), f"{one['price']:g}"),
            *(f"{one['paid']:.4g}", f"{one['penalties']:.4g}", f"{one['state']}{ended}", phases),
        )
    console = Console()
    console.print(f"journal of {body['participant']}")
    console.print(table)
    for one in body["moves"]:
        if one["outage_seconds"] > 0:
            console.print(f"{one['id']}: {one['note']}; {one['taker']} pays {one['penalties']:.4g} in penalties")
    for name, balance in body["balances"].items():
        console.print(f"{name}: {balance:+.4g}")
    shed = [one for one in body["entries"] if one["keep"] < 1.0 and one["reason"] == "load"]
    if shed:
        least = min(one["keep"] for one in shed)
        console.print(f"{len(shed)} periods in which tuples were dropped; the least that was kept is {least:.0%}")
    waiting = sum(not one["agreed"] and not one["disputed"] for one in body["entries"])
    old = sum(one["entries"] for one in body["settled"])
    console.print(f"{len(body['entries'])} entries, {waiting} not agreed by the partner yet; {old} older ones as sums")
    for one in body["entries"]:
        if one["disputed"]:
            console.print(f"disputed, in no balance: {one['id']} over {one['amount']:.4g}: {one['disputed']}")
