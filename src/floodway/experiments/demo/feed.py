"""The demo's feeder, a process of its own: `python -m floodway.experiments.demo.feed LOG RATE SECONDS SEED PARENT`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from floodway.experiments.demo.shop import Shop
from floodway.spark.log.feeder import LogTarget, feed
from floodway.spark.log.writer import LogWriter

TICK = 0.1


def ticks(rate: float, seconds: float, parent: int) -> Iterator[int]:
    """Tuples per tick, without rounding errors that add up; ends with the process that wanted them."""
    for index in range(round(seconds / TICK)):
        if os.getppid() != parent:
            return
        yield round((index + 1) * rate * TICK) - round(index * rate * TICK)


def main(log: str, rate: str, seconds: str, seed: str, parent: str) -> None:
    """Feed the log."""
    with LogWriter(Path(log), sync=False) as writer:
        made = ticks(float(rate), float(seconds), int(parent))
        feed(LogTarget(writer), Shop(int(seed)), made, partitions=1, tick=TICK)


if __name__ == "__main__":
    main(*sys.argv[1:])
