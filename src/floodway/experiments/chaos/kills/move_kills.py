"""Partners of a federation, killed or held up at every step of a move and of its bills.

Participants are processes with real sockets, leases, journals and books; their fragments run on an engine without
Spark, which journals as Spark does. Each point is a federation of its own: a side comes to its step, is killed and
started again, or stopped for longer than every time-out; then one owner runs each fragment, every result is there
once, and the books of the two sides agree.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from floodway.agent.federation.moving import STEPS
from floodway.errors import FloodwayError
from floodway.experiments.chaos.federation_world import FAST, World
from floodway.experiments.chaos.result import FaultResult, Trial

ALL_STEPS = (*STEPS, "giver:settled", "taker:billing", "giver:booked", "taker:billed")
HOLD_SECONDS = FAST.move + FAST.lease + FAST.margin
"""Longer than every time-out of these participants."""
PATIENCE_SECONDS = 120.0
SPARK_MARGIN_SECONDS = 5.0


def kills(trial: Trial) -> FaultResult:
    """Partners without Spark, at every step."""
    return _campaign("move-kills", trial, ALL_STEPS, World, HOLD_SECONDS, PATIENCE_SECONDS)


def spark_kills(trial: Trial) -> FaultResult:
    """Partners with a Spark application each, at the steps of a move."""
    from floodway.experiments.chaos.kills.spark_partners import LEASE_SECONDS, SparkWorld

    hold_seconds = 2 * LEASE_SECONDS + SPARK_MARGIN_SECONDS
    return _campaign("partner-kills", trial, STEPS, SparkWorld.make, hold_seconds, SparkWorld.step_seconds)


def _campaign(
    name: str,
    trial: Trial,
    all_steps: Sequence[str],
    make: Callable[[Path], World],
    hold_seconds: float,
    patience_seconds: float,
) -> FaultResult:
    """Steps in an order by the seed; every fourth point is a stop."""
    result = FaultResult(name, detail={"points": []})
    rng = trial.rng(name)
    steps: list[str] = []
    while len(steps) < trial.points:
        steps += rng.sample(all_steps, len(all_steps))
    for number, step in enumerate(steps[: trial.points]):
        stops = number % 4 == 1
        point = f"{'SIGSTOP' if stops else 'SIGKILL'} at {step}"
        trial.progress(number / trial.points, point)
        folder = trial.folder / str(number)
        folder.mkdir(parents=True)
        world = make(folder)
        try:
            if stops:
                world.survives_a_stop(step, hold_seconds)
            else:
                world.survives_a_kill(step, patience_seconds)
        except FloodwayError as error:
            result.differences.append(f"{point}: {error}")
        finally:
            world.end()
        result.tried += 1
        result.detail["points"].append(point)
        shutil.rmtree(folder, ignore_errors=True)
    return result
