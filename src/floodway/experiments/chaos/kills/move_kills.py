"""Partners of a federation, killed or held up at every step of a move and of its bills.

Participants are processes with real sockets, leases, journals and books; their fragments run on an engine without
Spark, which journals as Spark does. Each point is a federation of its own: a side comes to its step, is killed and
started again, or stopped for longer than every time-out; then one owner runs each fragment, every result is there
once, and the books of the two sides agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from floodway.agent.federation.moves import STEPS
from floodway.experiments.chaos.federation_world import FAST, SETTINGS, FederationWorld, try_point
from floodway.experiments.chaos.result import FaultResult, Trial

ALL_STEPS = (*STEPS, "giver:settled", "taker:billing", "giver:booked", "taker:billed")
HOLD_SECONDS = max(FAST.move, SETTINGS.arrival_seconds) + FAST.lease + FAST.margin
"""Longer than every time-out of these participants."""
PATIENCE_SECONDS = 600.0


def kills(trial: Trial) -> FaultResult:
    """Partners without Spark, at every step."""
    return _campaign("move-kills", trial, ALL_STEPS, FederationWorld, HOLD_SECONDS, PATIENCE_SECONDS)


def spark_kills(trial: Trial) -> FaultResult:
    """Partners with a Spark application each, at the steps of a move."""
    from floodway.experiments.chaos.kills.spark_partners import PACE, SETTINGS, SparkWorld

    hold_seconds = max(PACE.move, SETTINGS.arrival_seconds) + PACE.lease + PACE.margin
    return _campaign("partner-kills", trial, STEPS, SparkWorld.make, hold_seconds, SparkWorld.step_seconds)


def _campaign(
    name: str,
    trial: Trial,
    all_steps: Sequence[str],
    make: Callable[[Path], FederationWorld],
    hold_seconds: float,
    patience_seconds: float,
) -> FaultResult:
    """Steps in an order by the seed; every fourth point is a stop."""
    result = FaultResult(name)
    rng = trial.rng(name)
    steps: list[str] = []
    while len(steps) < trial.points:
        steps += rng.sample(all_steps, len(all_steps))
    for number, step in enumerate(steps[: trial.points]):
        if number % 4 == 1:
            stop = partial(FederationWorld.survives_a_stop, step=step, hold_seconds=hold_seconds)
            try_point(trial, result, f"SIGSTOP at {step}", make, stop)
        else:
            kill = partial(FederationWorld.survives_a_kill, step=step, patience_seconds=patience_seconds)
            try_point(trial, result, f"SIGKILL at {step}", make, kill)
    return result
