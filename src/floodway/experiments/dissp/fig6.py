"""Figure 6: with the controller, mean latency, CPU and tuples kept for 20 to 200 queries and four targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from floodway.control.latency import stability_bound
from floodway.experiments.dissp import common
from floodway.experiments.plots import PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result

TITLE = "With control: latency at the target, CPU full, tuples kept rise with the target"
CLAIM = Claim(
    common.SOURCE,
    "Figure 6",
    "Above 120 queries the mean latency is at the target in all four cases, the CPU is full, and the number of tuples "
    "kept rises with the target; every waiting tuple costs c_s of bookkeeping, equation (1)",
)
OVERLOADED = tuple(queries for queries in common.QUERIES if queries >= 120)
ALWAYS = tuple(queries for queries in common.QUERIES if queries >= 180)
"""From here on even the lowest of the rates is above the capacity."""
CLOSE, BELOW, FULL = 0.1, 0.25, 0.9


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Every target, every number of queries, the paper's gain of 0.1."""
    table: dict[float, dict[int, dict[str, float]]] = {}
    for index, target in enumerate(common.TARGETS):
        table[target] = {queries: _mean(target, queries, seeds) for queries in common.QUERIES}
        progress((index + 1) / len(common.TARGETS))
    errors = {q: [table[t][q]["latency"] / t - 1.0 for t in common.TARGETS] for q in OVERLOADED}
    worst = max(abs(error) for q in ALWAYS for error in errors[q])
    highest, lowest = max(map(max, errors.values())), min(map(min, errors.values()))
    full = min(table[t][q]["busy"] for t in common.TARGETS for q in OVERLOADED)
    rises = all(
        table[low][q]["kept"] < table[high][q]["kept"]
        for low, high in zip(common.TARGETS, common.TARGETS[1:], strict=False)
        for q in OVERLOADED
    )
    gathering = [table[t][200]["locked"] for t in common.TARGETS]
    bounds = {f"{t:g} s": round(stability_bound(t, common.TICK_SECONDS), 4) for t in common.TARGETS}
    return Result(
        measured={
            "worst relative error of the mean, always overloaded": worst,
            "relative error of the mean from 120 queries on": {"highest": highest, "lowest": lowest},
            "least CPU above 120 queries": full,
            "stability bounds of the gain": bounds,
            **{f"target {t:g} s": {str(q): row for q, row in rows.items()} for t, rows in table.items()},
        },
        criteria=(
            Criterion(
                f"where every rate overloads, the mean is within {CLOSE:.0%} of each target",
                worst < CLOSE,
                f"{worst:.1%}",
            ),
            Criterion(
                f"from 120 queries on it is at most {CLOSE:.0%} above and {BELOW:.0%} below",
                highest < CLOSE and lowest > -BELOW,
                f"{lowest:+.1%} to {highest:+.1%}",
            ),
            Criterion(f"from 120 queries on the CPU is over {FULL:.0%} busy", full > FULL, f"{full:.1%}"),
            Criterion("tuples kept rise with the target", rises),
            Criterion(
                "bookkeeping takes CPU, and more of it the more tuples wait: its share rises with the target",
                gathering == sorted(gathering) and gathering[0] > 0.0,
                ", ".join(f"{share:.1%}" for share in gathering),
            ),
        ),
        where="simulation",
        notes=(
            "Means over results from the 80th second on. Between 120 and 160 queries the lowest of the rates is below "
            "the capacity chosen here: for ten seconds in forty nothing waits, and the mean is below the target.",
            "The paper's gain 0.1 breaks its own stability bound at 3 s "
            "(0.08): the mean still holds, the spread shows it (dissp-fig7).",
        ),
        headline=f"from 180 queries on the mean is within {worst:.1%} of the target (from 120 on {lowest:+.0%} to "
        f"{highest:+.1%}), CPU at least {full:.0%} busy; kept at 200 queries "
        + ", ".join(f"{table[t][200]['kept']:.0f} at {t:g} s" for t in common.TARGETS),
        plots={"dissp-fig6": lambda: _draw(table)},
    )


def _mean(target: float, queries: int, seeds: Sequence[int]) -> dict[str, float]:
    runs = [common.controlled(target, queries, seed) for seed in seeds]
    return {
        "latency": sum(found.mean_latency() for found in runs) / len(runs),
        "busy": sum(found.settled(found.busy) for found in runs) / len(runs),
        "kept": sum(found.settled(found.kept) for found in runs) / len(runs),
        "locked": sum(found.settled(found.locked) for found in runs) / len(runs),
    }


def _draw(table: Mapping[float, Mapping[int, Mapping[str, float]]]) -> Figure:
    figure, axes = panels(1, 3, width=12.0)
    names = {"latency": "(a) mean latency (s)", "busy": "(b) share of CPU busy", "kept": "(c) tuples kept a tick"}
    for place, (key, title) in zip(axes, names.items(), strict=True):
        for target, colour in zip(common.TARGETS, PALETTE, strict=False):
            values = [table[target][queries][key] for queries in common.QUERIES]
            place.plot(common.QUERIES, values, color=colour, marker="o", ms=4, label=f"T = {target:g} s")
            if key == "latency":
                place.axhline(target, color=colour, linestyle="--", linewidth=0.8)
        style(place, title=title, x="queries", y=key, legend=key == "latency")
    return figure
