"""Section 6: the law needs no model of the costs. They double half-way; beside it other laws and admission control.

The paper leaves a comparison with admission control to future work: the gradient and Vegas limits stand for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from floodway.control.aurora import AuroraConfig, AuroraController
from floodway.control.base import Controller, Decision, Observation, State
from floodway.control.registry import make_controller
from floodway.experiments.dissp import common
from floodway.experiments.plots import PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result

TITLE = "Costs that double while running: the latency law beside other laws"
CLAIM = Claim(
    common.SOURCE,
    "Section 6",
    "The controller keeps the latency close to the target without modelling the processing costs",
)
TARGET = 1.0
QUERIES = 140
SECONDS = 320.0
CHANGE = 160.0
CLOSE = 0.15
LIMITS = ("gradient", "vegas")
MODEL = "model fixed at the start"


@dataclass(frozen=True, slots=True)
class FixedLimit(Controller[State]):
    """Keep what a model made at the start says fits into the target: n = capacity · T, whatever is measured."""

    n: float
    name: ClassVar[str] = "fixed"
    signal: ClassVar[str] = "waiting"

    def initial(self) -> State:
        """Nothing is remembered."""
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        """The same n for ever."""
        return state, Decision(min(self.n, observation.waiting), 1.0, "fixed")


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Mean latency over the last quarter, long after the change; and the mean distance of a tick from the target."""
    capacity = float(np.mean(common.RATES)) * common.SUSTAINED_QUERIES
    laws: dict[str, Controller[Any] | None] = {
        "latency law, gain 0.1": common.law(TARGET),
        "latency law, gain chosen": common.law(TARGET, gain=None),
        "Aurora step": AuroraController(AuroraConfig(TARGET, tick_seconds=common.TICK_SECONDS)),
        MODEL: FixedLimit(capacity * TARGET),
        **{name: make_controller(name, nominal=capacity * TARGET) for name in LIMITS},
        "none": None,
    }
    runs: dict[str, common.EngineTrace] = {}
    every: dict[str, list[dict[str, float]]] = {}
    for index, (name, controller) in enumerate(laws.items()):
        for seed in seeds:
            found = common.run_engine(
                controller, QUERIES, seconds=SECONDS, seed=seed, slowdown=lambda time: 1.0 if time < CHANGE else 2.0
            )
            runs.setdefault(name, found)
            every.setdefault(name, []).append(_figures(found))
        progress((index + 1) / len(laws))
    table = {name: {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} for name, rows in every.items()}
    ours, late = every["latency law, gain 0.1"], "mean, last quarter"
    limits = {name: table[name][late] for name in LIMITS}
    return Result(
        measured=table,
        criteria=(
            Criterion(
                f"the latency law returns to within {CLOSE:.0%} of the target after costs have doubled",
                all(abs(row[late] / TARGET - 1) < CLOSE for row in ours),
                _range(ours, late),
            ),
            Criterion(
                "a model fixed at the start does not",
                all(row[late] > (1 + CLOSE) * TARGET for row in every[MODEL]),
                _range(every[MODEL], late),
            ),
            Criterion(
                "the latency law stays nearer to the target than the Aurora step",
                all(a["distance"] < b["distance"] for a, b in zip(ours, every["Aurora step"], strict=True)),
                f"{_range(ours, 'distance')} and {_range(every['Aurora step'], 'distance')}",
            ),
            Criterion(
                "admission control looks for the knee of the latency curve: neither limit ends near the target",
                all(abs(row[late] / TARGET - 1) > CLOSE for name in LIMITS for row in every[name]),
                ", ".join(f"{name} {mean:.2f} s" for name, mean in limits.items()),
            ),
        ),
        where="simulation",
        notes=("The comparison is ours; the paper shows none.",),
        headline="mean latency long after the change, target 1 s: "
        + ", ".join(f"{name} {row['mean, last quarter']:.2f} s" for name, row in table.items()),
        plots={"dissp-laws": lambda: _draw(runs)},
    )


def _figures(found: common.EngineTrace) -> dict[str, float]:
    seen = np.isfinite(found.latency) & (found.times > common.SETTLE_SECONDS)
    return {
        "mean, before": _mean(found, common.SETTLE_SECONDS, CHANGE),
        "mean, last quarter": found.mean_latency(0.75 * SECONDS),
        "distance": float(np.mean(np.abs(found.latency[seen] - TARGET))),
        "served": float(found.latencies[:, 2].sum()),
    }


def _range(rows: Sequence[Mapping[str, float]], key: str) -> str:
    """The least and the most over the seeds."""
    return f"{min(row[key] for row in rows):.3f} to {max(row[key] for row in rows):.3f} s"


def _mean(found: common.EngineTrace, since: float, until: float) -> float:
    ended = found.latencies[:, 0]
    chosen = found.latencies[(ended >= since) & (ended < until)]
    return float(np.average(chosen[:, 1], weights=chosen[:, 2]))


def _draw(runs: Mapping[str, common.EngineTrace]) -> Figure:
    figure, (axes,) = panels(1, 1, width=9.0)
    for (name, found), colour in zip(runs.items(), PALETTE, strict=False):
        axes.plot(found.times, found.latency, color=colour, linewidth=1.2, label=name)
    axes.axhline(TARGET, color="#22303c", linestyle="--", linewidth=1)
    axes.axvline(CHANGE, color="#c9d1d8")
    axes.set_ylim(0, 6 * TARGET)
    style(axes, title="Costs double after 160 s", x="time (s)", y="mean latency of results (s)", legend=True)
    return figure
