"""The demo's table: the three runs side by side, and estimates beside the truth."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from floodway.experiments.demo.result import PARTS, Run
from floodway.experiments.demo.shop import WORTH

NOTES = (
    f"Value: an order counts {WORTH['order']:g}, a click {WORTH['click']:g}. The best is what as many events of this "
    "load could be worth at most.",
    "Estimates: sums of _weight over what was kept, beside what the feeder wrote; the worst of 18 is the largest error "
    "of clicks, orders and revenue in six categories.",
)


def show(runs: Sequence[Run], target: float, console: Console | None = None) -> None:
    """Print the table."""
    console = console or Console()
    table = Table("", *(run.name for run in runs), title=f"The same load, target {target:g} s", title_justify="left")
    for name, cells in rows(runs):
        table.add_row(name, *cells)
    console.print(table)
    for note in NOTES:
        console.print(note)


def rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """The rows: a name, and a cell for each run."""
    found = [
        ("mean latency", [_seconds(run.latency) for run in runs]),
        ("latency of the last batch", [_seconds(run.last_latency) for run in runs]),
        ("orders processed", [f"{run.share('order'):.0%}" for run in runs]),
        ("clicks processed", [f"{run.share('click'):.0%}" for run in runs]),
        ("value processed", [f"{run.value:,.0f}" for run in runs]),
        ("of the best for as many events", [_share(run.value, run.best_value) for run in runs]),
    ]
    for part in PARTS:
        truth = sum(getattr(runs[0].truth, part).values())
        found.append((f"{part}: truth {truth:,.0f}", [_estimate(run, part) for run in runs]))
    found.append(("worst of 18 estimates", [_worst(run) for run in runs]))
    found.append(("ledger", [_ledger(run) for run in runs]))
    return found


def _seconds(value: float | None) -> str:
    return "nothing came out" if value is None else f"{value:.1f} s"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _estimate(run: Run, part: str) -> str:
    found = run.estimate(part)
    return "not there yet" if found is None else f"{found[0]:,.0f} ({found[1]:+.2%})"


def _worst(run: Run) -> str:
    errors = run.errors
    return f"{max(map(abs, errors)):.2%} off" if errors else "–"


def _ledger(run: Run) -> str:
    if not run.ledger:
        return "–"
    made = round(sum(run.truth.of(kind) for kind in WORTH))
    whole = run.ledger["offered"] == made == run.ledger["kept"] + run.ledger["dropped"]
    return "every event accounted for" if whole else "DIFFERS from what was written"
