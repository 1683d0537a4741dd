"""What this machine can do with the demo's job, and the target that follows from it.

The target follows from what an empty batch takes: on a busy machine that is a second and more. Both figures are taken
beside a feeder that writes as many events as the runs will be offered: it takes its part of the CPU then too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from floodway.experiments.demo.jobs import (
    DROPS,
    STEADY_BATCHES,
    WITHOUT,
    OfferedBatches,
    feeding,
    rates_until_steady,
    shedder,
    started,
)
from floodway.experiments.demo.result import DemoRun
from floodway.experiments.demo.shop import WORTH

if TYPE_CHECKING:
    from floodway.spark.session.session import Session

OVERLOAD = 2.0
MOST_PROCESSED = 0.8
"""A run without Floodway that processes more of its load than this was not overloaded: half of it would be."""
ALL = 0.97
LARGE_EVENTS = 40_000
CALIBRATION_SECONDS = 25.0
"""After that many the measurement ends at the latest: a machine that does much else is never steady."""
CHECK_SECONDS = 15.0
"""The same for the check before the run with Floodway."""
FEED_SECONDS = 120.0
"""How long the feeder beside a measurement may run; it is ended with the measurement."""
BATCH_SHARE = 5.0
"""The target is such that what an empty batch takes is about a fifth of its batches."""
LEAST_TARGET, MOST_TARGET = 3.0, 15.0
LEAST_SECONDS, SECONDS_PER_TARGET = 30.0, 6.0

Progress = Callable[[str, float, str], None]
"""Title, share done in [0, 1], and a remark: for a progress bar."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was measured: events per second in large batches, and what an empty batch takes, in seconds."""

    capacity: float
    batch_seconds: float

    @property
    def target(self) -> float:
        """A latency that the job can meet on this machine with most of the time left for events, in whole seconds."""
        return min(max(LEAST_TARGET, float(ceil(1.5 * BATCH_SHARE * self.batch_seconds))), MOST_TARGET)

    def to_dict(self) -> dict[str, float]:
        """For --json."""
        return {"capacity": self.capacity, "batch_seconds": self.batch_seconds}


def faster(machine: Calibrated, run: DemoRun) -> Calibrated | None:
    """The machine as a run without Floodway has found it, where it could do far more than was measured; else None.

    A compiler, or another program, that took the CPU while it was measured makes it faster by half and more.
    """
    offered, processed = (sum(count(kind) for kind in WORTH) for count in (run.load.of, run.processed))
    if processed <= MOST_PROCESSED * offered:
        return None
    found = processed / run.counted_seconds
    # Who processed all of it may have done so in half of the time.
    return replace(machine, capacity=found if processed < ALL * offered else max(OVERLOAD * machine.capacity, found))


def load_seconds(target: float) -> float:
    """How long the load is to last: for about nine batches of the target."""
    return max(LEAST_SECONDS, SECONDS_PER_TARGET * target)


def calibrate(spark: Session, folder: Path, progress: Progress, *, seconds: float = CALIBRATION_SECONDS) -> Calibrated:
    """What this machine can do: large batches until they get no faster, then large and small ones beside a feeder."""
    title = "measuring what this machine can process"
    with started(spark, folder, DROPS[WITHOUT], "demo_calibration") as query:
        batches = OfferedBatches(query, folder)
        rates = rates_until_steady(
            lambda: batches.rate(LARGE_EVENTS),
            seconds,
            lambda count, rate: progress(title, 1.0 - 1.0 / count, f"{rate:,.0f} events/s"),
        )
        with _feeder_beside(folder, OVERLOAD * median(rates[-STEADY_BATCHES:])):
            rate = median(batches.rate(LARGE_EVENTS) for _ in range(STEADY_BATCHES))
            machine = Calibrated(rate, batches.least_seconds())
    progress(title, 1.0, f"{machine.capacity:,.0f} events/s; an empty batch takes {machine.batch_seconds:.1f} s")
    return machine


def checked(
    spark: Session,
    folder: Path,
    machine: Calibrated,
    rate: float,
    progress: Progress,
    *,
    seconds: float = CHECK_SECONDS,
) -> Calibrated:
    """The machine as it is now, with Floodway in the job: its batches may take longer than when it was measured."""
    title = "checking the measurement"
    drop = shedder(machine.target, folder / "state")
    with started(spark, folder, drop, "demo_check") as query:
        batches = OfferedBatches(query, folder)
        rates_until_steady(
            lambda: batches.rate(LARGE_EVENTS), seconds, lambda count, _: progress(title, 1.0 - 1.0 / count, "")
        )
        with _feeder_beside(folder, rate):
            least = batches.least_seconds()
    progress(title, 1.0, f"an empty batch takes {least:.1f} s")
    return replace(machine, batch_seconds=max(least, machine.batch_seconds))


def _feeder_beside(folder: Path, rate: float) -> AbstractContextManager[object]:
    """A feeder of this rate, whose events nobody reads."""
    beside = folder / "beside"
    beside.mkdir()
    return feeding(beside, rate, FEED_SECONDS)
