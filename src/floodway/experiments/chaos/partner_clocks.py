"""Partners of a federation whose clocks differ, drift, and are set while a fragment moves: no lease in two hands.

Each point is a federation of its own (`federation_world.py`). The clocks of both sides differ by up to a day, go faster
or slower by up to five in a hundred, and one of them is set by up to a day after some seconds. Afterwards one owner
runs each fragment, no lease was taken from an owner that lives, and every result is there once.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from floodway.contracts.federation_file import parse_federation
from floodway.errors import FloodwayError
from floodway.experiments.chaos.clocks import STEPS_SECONDS
from floodway.experiments.chaos.federation_world import FAST, World, agent, must
from floodway.experiments.chaos.result import FaultResult, Trial

MOST_DRIFT = 0.05
SET_AFTER_SECONDS = 3.0
WATCH_SECONDS = SET_AFTER_SECONDS + FAST.move + 2 * FAST.lease


def faults(trial: Trial) -> FaultResult:
    """Clocks by the seed."""
    result = FaultResult("partner-clocks", detail={"points": []})
    rng = trial.rng("partner-clocks")
    for number in range(trial.points):
        clocks = {name: _clock(rng) for name in ("A", "B")}
        clocks[rng.choice("AB")]["step"] = rng.choice((-1, 1)) * rng.choice(STEPS_SECONDS)
        trial.progress(number / trial.points, str(clocks))
        folder = trial.folder / str(number)
        folder.mkdir(parents=True)
        world = ClockWorld(folder)
        try:
            world.survives(clocks)
        except FloodwayError as error:
            result.differences.append(f"{clocks}: {error}")
        finally:
            world.end()
        result.tried += 1
        result.detail["points"].append(clocks)
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _clock(rng: random.Random) -> dict[str, float]:
    ahead = rng.choice((-1, 1)) * rng.choice((0.0, *STEPS_SECONDS))
    return {"ahead": ahead, "drift": round(rng.uniform(-MOST_DRIFT, MOST_DRIFT), 4), "step": 0.0}


def run_clocked_participant(text: str, name: str, root: str, clock: str | None) -> None:
    """The body of a participant's process, with a wall clock as described."""
    said, began = json.loads(clock or "{}"), time.monotonic()

    def wall() -> float:
        passed = time.monotonic() - began
        step = said["step"] if passed > SET_AFTER_SECONDS else 0.0
        return float(time.time() + said["ahead"] + said["drift"] * passed + step)

    member = agent(parse_federation(text), name, Path(root), lambda step: None, clock=wall)
    member.start()
    member.run()


class ClockWorld(World):
    """The small federation with clocks of its own on either side."""

    def body(self) -> Callable[[str, str, str, str | None], None]:
        """See `World`."""
        return run_clocked_participant

    def survives(self, clocks: dict[str, dict[str, float]]) -> None:
        """Let a fragment move, set a clock, and look at leases and results."""
        with self.feeding():
            for name, clock in clocks.items():
                self.start(name, json.dumps(clock))
            self.wait("one fragment at each", self.settled, alive=("A", "B"))
            time.sleep(WATCH_SECONDS)
            self.wait("one fragment at each, after the clock was set", self.settled, alive=("A", "B"))
        self.wait("all results", self.caught_up, alive=("A", "B"))
        taken = [lease for name in self.fed for lease in self.store.history(name) if lease.idle_since is not None]
        self.end()
        must(not taken, f"leases were taken from an owner that lived: {taken}")
        self.check_results()
