"""What every command shares: reading `name=value` options, printing one JSON object, and figures in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from floodway.json_text import finite

if TYPE_CHECKING:
    from rich.table import Table

    from floodway.job.status.batches import Latency
    from floodway.job.status.status import Status


def latency_line(latency: Latency) -> str:
    """Mean and quantiles beside the target, for people."""
    target = "" if latency.target is None else f"; target {latency.target:g} s"
    if latency.mean is None:
        return f"latency: nothing was delivered{target}"
    quantiles = {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99}
    shown = "".join(f", {name} {value:.2f}" for name, value in quantiles.items() if value is not None)
    return f"latency: mean {latency.mean:.2f} s{shown}{target}"


def status_line(status: Status) -> str:
    """A job in one line: where it stands, or how late it is and what it drops."""
    process = status.process
    if process is not None and process.phase != "running":
        waits = ", ".join(process.waiting_for)
        return f"{process.phase}{f' for {waits}' if waits else ''}"
    latency = "–" if status.latency.mean is None else f"{status.latency.mean:.2f} s"
    target = "" if status.latency.target is None else f" (target {status.latency.target:g} s)"
    capacity = "" if status.plan is None else f", capacity {status.plan.scale:.2f}"
    return f"latency {latency}{target}, dropped {status.loss or 0.0:.0%}{capacity}, batches {status.batch_count}"


def deadline_lines(deadlines: Mapping[str, Any]) -> list[str]:
    """One line per stream with a deadline, for people."""
    return [
        f"deadline of {name}: {seen['in_time']:,} in time, {seen['late']:,} late ({seen['miss_ratio']:.1%}), "
        f"{seen['purged']:,} purged before they could be late"
        for name, seen in deadlines.items()
    ]


def losses_table(*titles: str, title: str) -> Table:
    """An empty table of places, under these columns and what `losses_row` gives."""
    from rich.table import Table

    return Table(*titles, "offered", "kept", "dropped by reason", title=title)


def losses_row(offered: int, kept: int, dropped: Mapping[str, int]) -> tuple[str, str, str]:
    """What a place was offered, kept and dropped, for people."""
    return f"{offered:,}", f"{kept:,}", ", ".join(f"{reason} {count:,}" for reason, count in dropped.items()) or "–"


def print_json(body: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout; infinities and NaN become null, as JSON has neither."""
    typer.echo(json.dumps(finite(body)))


def hand_out(body: dict[str, Any], report: Path | None, show: Callable[[], None], *, as_json: bool) -> None:
    """The report of a job that has ended: to a file if one is named, and as JSON or shown to people."""
    if report is not None:
        report.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(body)
    else:
        show()
