"""The demo's table: the three runs side by side, and estimates beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from floodway.experiments.demo.result import PARTS, DemoRun
from floodway.experiments.demo.shop import WORTH
from floodway.experiments.plots import INK, PALETTE, panels, style

NOTES = (
    f"Value: an order counts {WORTH['order']:g}, a click {WORTH['click']:g}. The best is what as many events of this "
    "load could be worth at most.",
    "Estimates: sums of _weight over what was kept, beside what the feeder wrote; the worst of 18 is the largest error "
    "of clicks, orders and revenue in six categories.",
)


def show(runs: Sequence[DemoRun], target: float, console: Console | None = None) -> None:
    """Print the table."""
    console = console or Console()
    table = Table("", *(run.name for run in runs), title=f"The same load, target {target:g} s", title_justify="left")
    for name, cells in rows(runs):
        table.add_row(name, *cells)
    console.print(table)
    for note in NOTES:
        console.print(note)


def rows(runs: Sequence[DemoRun]) -> list[tuple[str, list[str]]]:
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


def _estimate(run: DemoRun, part: str) -> str:
    found = run.estimate(part)
    return "not there yet" if found is None else f"{found[0]:,.0f} ({found[1]:+.2%})"


def _worst(run: DemoRun) -> str:
    errors = run.errors
    return f"{max(map(abs, errors)):.2%} off" if errors else "–"


def _ledger(run: DemoRun) -> str:
    if not run.ledger:
        return "–"
    made = round(sum(run.truth.of(kind) for kind in WORTH))
    whole = run.ledger["offered"] == made == run.ledger["kept"] + run.ledger["dropped"]
    return "every event accounted for" if whole else "DIFFERS from what was written"


COLOURS = (PALETTE[1], PALETTE[5], PALETTE[0])
WIDTH = 0.25


def save(path: Path, runs: Sequence[DemoRun], target: float, rate: float) -> Path:
    """Draw all runs over the same time axis and write a picture of the kind that the name's ending says."""
    figure, (latency, kept) = panels(1, 2, width=11.0, height=4.2)
    for run, colour in zip(runs, COLOURS, strict=False):
        seen = run.counted
        latency.plot([b.ended for b in seen], [b.latency for b in seen], "o-", ms=3, color=colour, label=run.name)
    latency.axhline(target, color=INK, linestyle="--", linewidth=1, label=f"target {target:g} s")
    latency.set_ylim(bottom=0)
    style(latency, title=f"Latency at {rate:,.0f} events/s", x="seconds of load", y="seconds", legend=True)
    for place, (run, colour) in enumerate(zip(runs, COLOURS, strict=False)):
        best = run.best_value
        offered = sum(run.load.of(kind) for kind in ("order", "click"))
        shares = [run.share("order"), run.share("click"), run.value / best if best else 0.0]
        spots = [index + (place - 1) * WIDTH for index in range(len(shares))]
        bars = kept.bar(spots, shares, width=WIDTH * 0.9, color=colour, label=run.name)
        kept.bar_label(bars, [f"{share:.0%}" if offered else "–" for share in shares], fontsize=8, color=INK)
    kept.set_xticks([0, 1, 2], ["orders", "clicks", "value, of the best\nfor as many events"])
    kept.set_ylim(0, 1.12)
    style(kept, title="Processed while the load lasted", x="", y="share")
    figure.savefig(path)
    return path
