"""Partners of a federation whose clocks differ, drift, and are set while fragments move: no lease in two hands.

Each point is a federation of its own (`federation_world.py`), whose participants are processes with the clock of a
machine of their own (`set_clock.py`): on the engine without Spark, or as `floodway participant`, Java included. The
clocks differ by up to a day, go faster or slower by up to five in a hundred, and are set twice by up to a day: while
the first fragment may move, and after that. Afterwards one owner runs each fragment, no lease was taken from an owner
that lives, and every result is there once.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from floodway.contracts.federation_file import parse_federation
from floodway.experiments.chaos.clocks import set_clock
from floodway.experiments.chaos.clocks.plane_clocks import MOST_DRIFT_PPM, STEPS_SECONDS, all_steps
from floodway.experiments.chaos.federation_world import FAST, FederationWorld, agent, must, try_point
from floodway.experiments.chaos.kills.processes import CommandJob, Job
from floodway.experiments.chaos.kills.spark_partners import PACE, SparkWorld
from floodway.experiments.chaos.result import FaultResult, Trial
from floodway.job.clocks import PROCESS_CLOCK

MODULE = "floodway.experiments.chaos.clocks.partner_clocks"
LEASE_SECONDS = 45.0
"""Renewed three times a second: a process that a busy machine holds up has not let it run out, a clock that is set by a
minute or more would have."""
KEY_BYTES = b"a key for clocks on this machine alone"


@dataclass(frozen=True, slots=True)
class Setting:
    """Whose clock is set, by how much, and when: a part of `first_seconds` after the start, or the setting before."""

    name: str
    seconds: float
    after_seconds: float

    def __str__(self) -> str:
        return f"clock of {self.name} set by {self.seconds:+g} s"


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the clocks of a point show: how far each is ahead, its drift, and how they are set."""

    ahead_seconds: Mapping[str, float]
    drift_ppm: Mapping[str, int]
    settings: tuple[Setting, ...]

    def __str__(self) -> str:
        begun = (f"{one} {ahead:+g} s {self.drift_ppm[one]:+d} ppm" for one, ahead in self.ahead_seconds.items())
        return ", ".join((*begun, *map(str, self.settings)))


def faults(trial: Trial) -> FaultResult:
    """Partners without Spark."""
    return _campaign("partner-clocks", trial, ClockWorld)


def spark_faults(trial: Trial) -> FaultResult:
    """`floodway participant` with its Spark application."""
    return _campaign("participant-clocks", trial, SparkClockWorld.make)


def _campaign(name: str, trial: Trial, make: Callable[[Path], ClockWorld]) -> FaultResult:
    """Clocks by the seed, every step before any comes again."""
    result = FaultResult(name)
    if (missing := set_clock.missing()) is not None:
        result.untried = missing
        return result
    rng = trial.rng(name)
    steps = iter(all_steps(rng, 2 * trial.points))
    for _ in range(trial.points):
        clocks = _clocks(rng, (next(steps), next(steps)))
        try_point(trial, result, clocks, make, partial(ClockWorld.survives, clocks=clocks))
    return result


def _clocks(rng: random.Random, steps: tuple[float, ...]) -> Clocks:
    ahead = {name: rng.choice((-1, 1)) * rng.choice((0.0, *STEPS_SECONDS)) for name in "AB"}
    drift = {name: rng.randint(-MOST_DRIFT_PPM, MOST_DRIFT_PPM) for name in "AB"}
    return Clocks(ahead, drift, tuple(Setting(rng.choice("AB"), step, rng.random()) for step in steps))


class ClockWorld(FederationWorld):
    """The small federation on machines with clocks of their own."""

    first_seconds: ClassVar[float] = 4.0
    """Within this time after its start a participant first moves a fragment."""
    watch_seconds: ClassVar[float] = FAST.move + 2 * FAST.lease

    def survives(self, clocks: Clocks) -> None:
        """Let a fragment move, set clocks, and look at leases and results."""
        self.clocks = {
            name: set_clock.SetClock(self.root / "clocks" / name, ppm) for name, ppm in clocks.drift_ppm.items()
        }
        with self.feeding():
            for name, ahead in clocks.ahead_seconds.items():
                self.clocks[name].step(ahead)
                self.start(name)
            for setting in clocks.settings:
                time.sleep(setting.after_seconds * self.first_seconds)
                self.clocks[setting.name].step(setting.seconds)
                self.wait(f"one fragment at each, {setting}", self.settled, alive=("A", "B"))
            time.sleep(self.watch_seconds)
            self.wait("one fragment at each, after the clocks were set", self.settled, alive=("A", "B"))
        self.wait("all results", self.caught_up, alive=("A", "B"))
        taken = [lease for name in self.fed for lease in self.store.history(name) if lease.idle_since is not None]
        self.end()
        must(not taken, f"leases were taken from an owner that lived: {taken}")
        self.check_results()

    def start(self, name: str, kill_at: str | None = None) -> Job:
        """A participant's process, with its clock."""
        file = self.root / "federation.yaml"
        file.write_text(self.text, encoding="utf-8")
        variables = self.clocks[name].variables
        command = self.command(file, name)
        process = self.processes[name] = CommandJob(command, self.root / f"{name}.txt", variables=variables)
        return process

    def command(self, file: Path, name: str) -> list[str]:
        """What runs a participant."""
        return ["-m", MODULE, str(file), name, str(self.root)]


class SparkClockWorld(ClockWorld, SparkWorld):
    """The same with the command that users start; it drops nothing, for that is its mode."""

    first_seconds: ClassVar[float] = 40.0
    watch_seconds: ClassVar[float] = 2 * PACE.lease

    def command(self, file: Path, name: str) -> list[str]:
        """See `ClockWorld`; messages are signed."""
        key = self.root / "key"
        key.touch(mode=0o600)
        key.write_bytes(KEY_BYTES.hex().encode())
        command = ["-m", "floodway.cli.main", "participant", str(file), "--name", name, "--key-file", str(key)]
        command += ["--state", str(self.root / name), "--shared", str(self.root / "shared")]
        command += ["--catalogue", "floodway.experiments.chaos.kills.spark_partners", "--mode", "observe"]
        return [*command, "--period", "2s", "--lease", f"{PACE.lease:g}s"]


if __name__ == "__main__":
    given = parse_federation(Path(sys.argv[1]).read_text(encoding="utf-8"))
    member = agent(
        given,
        sys.argv[2],
        Path(sys.argv[3]),
        lambda step: None,
        clock=PROCESS_CLOCK.now,
        lease_seconds=LEASE_SECONDS,
    )
    member.start()
    member.run()
