"""The demo's feeder, a process of its own: writes a file of events per tick, and at the end the truth about them.

    python -m floodway.experiments.demo.shop_feed FOLDER RATE SECONDS SEED PARENT

The folder gets the files; the truth is printed as one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from floodway.experiments.demo.shop import Shop, write

TICK = 0.25
"""Seconds per file."""
RISE, USUAL = 1 / 6, 0.25
"""The load begins as on a usual day, with a quarter of the rate, and rises to all of it in a sixth of the time."""


def ticks(rate: float, seconds: float) -> Iterator[int]:
    """Events per tick: a rise, then the rate; roundings do not add up.

    >>> list(ticks(40.0, 6.0))[:6]
    [3, 6, 7, 9, 10, 10]
    """
    made = due = 0.0
    for index in range(round(seconds / TICK)):
        risen = min(1.0, (index + 0.5) * TICK / (RISE * seconds))
        due += rate * TICK * (USUAL + (1.0 - USUAL) * risen)
        yield round(due - made)
        made += round(due - made)


def feed(
    folder: Path,
    shop: Shop,
    rate: float,
    seconds: float,
    *,
    wanted: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write the events of tick i when the tick ends, at start + (i + 1) tick; a late tick is written at once."""
    start = clock()
    for index, count in enumerate(ticks(rate, seconds)):
        if not wanted():
            return
        opens, closes = start + index * TICK, start + (index + 1) * TICK
        records = shop.make(count, start_us=round(opens * 1e6), end_us=round(closes * 1e6))
        sleep(max(0.0, closes - clock()))
        write(records, folder, f"{index:06}")


def main(folder: str, rate: str, seconds: str, seed: str, parent: str) -> None:
    """Feed the folder while the parent process lives; it reads the truth."""
    shop = Shop(int(seed))

    def wanted() -> bool:
        return os.getppid() == int(parent)

    feed(Path(folder), shop, float(rate), float(seconds), wanted=wanted)
    if wanted():
        print(json.dumps(asdict(shop.totals())))


if __name__ == "__main__":
    main(*sys.argv[1:])
