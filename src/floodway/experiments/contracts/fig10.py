"""Figure 10: how fast a federation settles: total cost, moves and tasks moved over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from floodway.experiments.contracts import common
from floodway.experiments.plots import Figure, lines, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.simulation.federation_cases import Floats, Variant
from floodway.simulation.federation_market import Outcome

TITLE = "Convergence in an underloaded federation, 5 contracts a node"
CLAIM = Claim(
    common.SOURCE,
    "Figure 10",
    "total cost is close to its final minimum within 15 s of the first move; the first moves carry the most "
    "tasks; fixed prices settle sooner than ranges",
)
CONTRACTS = 5
FIRST_TRY_SECONDS, PERIOD_SECONDS = 5.0, 2.0
SOON_SECONDS, CLOSE = 15.0, 0.02
SHOWN_SECONDS = 60.0


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """15 s after the first move at most 2% of the possible saving is still to come, in every variant."""
    runs: dict[Variant, list[Outcome]] = {}
    for place, variant in enumerate(Variant):
        runs[variant] = [common.FederationCase(seed, variant, CONTRACTS).run()[0] for seed in seeds]
        progress((place + 1) / len(Variant))
    measured: dict[str, Any] = {
        variant.value: {
            "cost_before": common.mean([float(one.cost[0]) for one in found]),
            "cost_after": common.mean([float(one.cost[-1]) for one in found]),
            "saving_to_come_after_15s": common.mean([to_come(one, SOON_SECONDS) for one in found]),
            "seconds_to_settle": common.mean([PERIOD_SECONDS * (len(one.rounds) - 1) for one in found]),
            "moves": common.mean([one.transfers for one in found]),
            "tasks_moved": common.mean([sum(step.tasks for step in one.rounds) for one in found]),
            "messages_per_node": common.mean([one.messages / common.NODES for one in found]),
        }
        for variant, found in runs.items()
    }
    early = all(
        one.rounds[0].tasks == max(step.tasks for step in one.rounds) for found in runs.values() for one in found
    )
    measured["first_round_moves_most"] = early
    settle = {variant: measured[variant.value]["seconds_to_settle"] for variant in Variant}
    later = {variant.value: measured[variant.value]["saving_to_come_after_15s"] for variant in Variant}
    return Result(
        measured=measured,
        criteria=(
            Criterion(
                f"15 s after the first move at most {CLOSE:.0%} of the saving is still to come, in every variant",
                max(later.values()) <= CLOSE,
                str(later),
            ),
            Criterion("the first round moves the most tasks, in every run", early),
            *(
                Criterion(
                    f"{fixed.value} settles sooner than {ranged.value}",
                    settle[fixed] < settle[ranged],
                    f"{settle[fixed]:.1f} and {settle[ranged]:.1f} s",
                )
                for fixed, ranged in (
                    (Variant.FIXED, Variant.RANGE),
                    (Variant.RANDOM_FIXED, Variant.RANDOM_RANGE),
                )
            ),
        ),
        where="simulation",
        notes=("All nodes try in step, every 2 s.",),
        headline="saving to come after 15 s / seconds to settle: "
        + ", ".join(
            f"{variant.value} {measured[variant.value]['saving_to_come_after_15s']:.2%} / {settle[variant]:.0f}"
            for variant in Variant
        ),
        plots={"contracts-fig10": lambda: _draw(runs)},
    )


def to_come(outcome: Outcome, seconds: float) -> float:
    """Share of the whole saving that is still to come `seconds` after the first move."""
    rounds = int(seconds // PERIOD_SECONDS) + 1
    cost = outcome.cost[min(rounds, len(outcome.cost) - 1)]
    return float((cost - outcome.cost[-1]) / (outcome.cost[0] - outcome.cost[-1]))


def _padded(values: Sequence[float], length: int, fill: float) -> Floats:
    return np.array([*values, *([fill] * length)], dtype=np.float64)[:length]


def _draw(runs: dict[Variant, list[Outcome]]) -> Figure:
    figure, (left, middle, right) = panels(1, 3, width=13.0)
    length = int((SHOWN_SECONDS - FIRST_TRY_SECONDS) / PERIOD_SECONDS) + 1
    times = FIRST_TRY_SECONDS + PERIOD_SECONDS * np.arange(length)
    costs = {
        variant.value: np.mean([_padded(one.cost[1:].tolist(), length, one.cost[-1]) for one in found], axis=0)
        for variant, found in runs.items()
    }
    before = float(np.mean([one.cost[0] for one in runs[Variant.FIXED]]))
    lines(left, [0.0, FIRST_TRY_SECONDS, *times], {name: [before, before, *values] for name, values in costs.items()})
    for axes, variant in ((middle, Variant.FIXED), (right, Variant.RANGE)):
        moves, tasks = (
            np.mean([_padded([getattr(step, what) for step in one.rounds], length, 0) for one in runs[variant]], axis=0)
            for what in ("transfers", "tasks")
        )
        lines(axes, times, {"moves": moves, "tasks moved": tasks}, marker="o")
    style(left, title="(a) Total cost", x="time (s)", y="tuples in flight", legend=True)
    style(middle, title="(b) Fixed: moves every 2 s", x="time (s)", y="count", legend=True)
    style(right, title="(c) Range: moves every 2 s", x="time (s)", y="count", legend=True)
    for axes in (left, middle, right):
        axes.set_ylim(bottom=0)
    figure.suptitle("Figure 10: 995 nodes, at least 5 contracts, mean over seeds", fontsize=11)
    return figure
