"""Ten monitored hosts as one feeder process: CPU readings at rates that change every ten seconds.

    python -m floodway.experiments.dissp.host_feed LOG STEPS SEED PARENT [TRACE]

STEPS is `10:500,10:1000` in tuples/s of all hosts together. TRACE is a CSV with one column a host and one row a
reading, such as CoMon's record of PlanetLab; without it readings are generated. It ends when PARENT does.
"""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.spark.log import LogWriter
from floodway.spark.log.feeder import TICK, LogTarget, feed
from floodway.spark.log.profiles import counts, steps

HOSTS = 10
SCHEMA = "host int, cpu double, at timestamp"


class Hosts:
    """Makes the hosts' tuples, each host in turn; a reading lasts a second, then comes the next one of its column."""

    def __init__(self, readings: NDArray[np.float64]) -> None:
        self._readings = readings
        self._made = 0
        self._start_us: int | None = None

    def make(self, count: int, *, start_us: int, end_us: int) -> pa.RecordBatch:
        """`count` tuples, evenly over the time, microseconds UTC."""
        self._start_us = start_us if self._start_us is None else self._start_us
        host = (np.arange(self._made, self._made + count) % HOSTS).astype(np.int32)
        at = start_us + np.arange(count, dtype=np.int64) * (end_us - start_us) // max(count, 1)
        second = (at - self._start_us) // 1_000_000
        self._made += count
        cpu = self._readings[second % len(self._readings), host]
        return pa.record_batch({"host": host, "cpu": cpu, "at": pa.array(at).cast(pa.timestamp("us", "UTC"))})


def read_hosts(path: Path) -> NDArray[np.float64]:
    """The first ten hosts of a record, a row for each reading, in percent."""
    try:
        found = np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(HOSTS), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise InputError(
            f"{path} is no table of readings: {error}", hint="Give a CSV with a head, and a column of numbers a host"
        ) from None
    return found


def generated(seed: int, readings: int = 288) -> NDArray[np.float64]:
    """Readings in percent: each host a walk that returns to a level of its own."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(5.0, 80.0, HOSTS)
    found = np.empty((readings, HOSTS))
    now = level.copy()
    for row in found:
        now = now + 0.2 * (level - now) + rng.normal(0.0, 8.0, HOSTS)
        row[:] = np.clip(now, 0.0, 100.0)
    return found


def main(log: str, text: str, seed: str, parent: str, trace: str = "") -> None:
    """Feed the log while the parent process lives."""
    hosts = Hosts(read_hosts(Path(trace)) if trace else generated(int(seed)))
    per_tick = takewhile(lambda _: os.getppid() == int(parent), counts(steps(text), tick=TICK))
    with LogWriter(log, sync=False) as writer:
        feed(LogTarget(writer), hosts, per_tick, partitions=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
