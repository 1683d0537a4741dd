"""The demo's table: the three runs side by side, and estimates beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from floodway.experiments.demo.jobs import PROTECTED, SAMPLE, WITHOUT
from floodway.experiments.demo.result import PARTS, DemoRun, optimum
from floodway.experiments.demo.shop import WORTH
from floodway.experiments.plots import INK, PALETTE, panels, style

NOTES = (
    f"Value: an order counts {WORTH['order']:g}, a click {WORTH['click']:g}. In time: the result is there within twice "
    "the target.",
    "Optimum: the best choice of as many events of this load as the fastest of these runs processed in these seconds.",
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
    best = optimum(runs)
    found = [
        ("mean latency", [_seconds(run.latency) for run in runs]),
        ("last latency", [_seconds(run.last_latency) for run in runs]),
        ("value/s in time", [f"{run.value_in_time / run.counted_seconds:,.0f}" for run in runs]),
        ("of the optimum", [_share(run.value_in_time, best) for run in runs]),
        ("value/s in all", [f"{run.value / run.counted_seconds:,.0f}" for run in runs]),
        ("orders in time", [_both(run, "order") for run in runs]),
        ("clicks in time", [_both(run, "click") for run in runs]),
    ]
    for part in PARTS:
        truth = sum(getattr(runs[0].truth, part).values())
        found.append((f"{part}: truth {truth:,.0f}", [_estimate(run, part) for run in runs]))
    found.append(("worst of 18", [_worst(run) for run in runs]))
    found.append(("ledger", [_ledger(run) for run in runs]))
    return found


def _both(run: DemoRun, kind: str) -> str:
    return f"{run.share_in_time(kind):.0%} (all: {run.share(kind):.0%})"


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


COLOURS = {WITHOUT: PALETTE[1], PROTECTED: PALETTE[0], SAMPLE: PALETTE[5]}
WIDTH = 0.25
FAINT_INK = 0.3


def save(path: Path, runs: Sequence[DemoRun], target: float, rate: float) -> Path:
    """Write a picture of the kind that the name's ending says."""
    figure = drawn(runs, target, rate)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Replaced as a whole: the live page may read it at any moment.
    hidden = path.parent / f".{path.name}"
    figure.savefig(hidden, format=path.suffix[1:])
    hidden.replace(path)
    return path


def drawn(runs: Sequence[DemoRun], target: float, rate: float) -> Figure:
    """All runs over the same time axis."""
    figure, (latency, kept) = panels(1, 2, width=11.0, height=4.2)
    best = optimum(runs)
    for place, run in enumerate(runs):
        colour, seen = COLOURS[run.name], run.counted
        latency.plot([b.ended for b in seen], [b.latency for b in seen], "o-", ms=3, color=colour, label=run.name)
        in_time = [run.share_in_time("order"), run.share_in_time("click"), run.value_in_time / best if best else 0.0]
        in_all = [run.share("order"), run.share("click"), run.value / best if best else 0.0]
        spots = [index + (place - (len(runs) - 1) / 2) * WIDTH for index in range(len(in_time))]
        kept.bar(spots, in_all, width=WIDTH * 0.9, color=colour, alpha=FAINT_INK)
        bars = kept.bar(spots, in_time, width=WIDTH * 0.9, color=colour)
        kept.bar_label(bars, [f"{share:.0%}" for share in in_time], fontsize=8, color=INK)
    latency.axhline(target, color=INK, linestyle="--", linewidth=1, label=f"target {target:g} s")
    latency.set_ylim(bottom=0)
    style(latency, title=f"Latency at {rate:,.0f} events/s", x="seconds of load", y="seconds", legend=True)
    kept.set_xticks([0, 1, 2], ["orders", "clicks", "value,\nof the optimum"])
    kept.set_xlim(-0.5, 2.5)
    kept.set_ylim(0, 1.12)
    style(kept, title="Processed in time; faint: late", x="", y="share")
    return figure
