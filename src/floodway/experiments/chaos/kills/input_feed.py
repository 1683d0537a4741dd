"""Input for jobs under attack, written while they run: to an embedded log, or to a topic."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from floodway.errors import FloodwayError
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.inputs import open_input
from floodway.spark.log.kafka_links import SCHEME
from floodway.spark.log.kafka_target import KafkaTarget
from floodway.spark.log.writer import now_micros

STREAM = "s"
TUPLES_A_SECOND, PART_SECONDS, MOST_WAITING = 400, 0.05, 3000


class InputFeed(ABC):
    """Writes the input as long as it is told to; what was written stays."""

    address: str
    """Where the network file finds it."""

    def __init__(self, tuples_per_second: int = TUPLES_A_SECOND, most_waiting: int = MOST_WAITING) -> None:
        self._tuples_per_second = tuples_per_second
        self._most_waiting = most_waiting
        self.consumed: Callable[[], int] = lambda: 0
        """How many tuples the job has committed: it must be overloaded, and not for ever behind."""
        self._stopped = threading.Event()
        self._flowing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def flow(self, flowing: bool) -> None:
        """Begin to write, or pause."""
        (self._flowing.set if flowing else self._flowing.clear)()

    def total(self) -> int:
        """Tuples written so far."""
        return sum(open_input(self.address).latest().values())

    @abstractmethod
    def write(self, count: int) -> None:
        """Write some tuples."""

    def _run(self) -> None:
        written, count = 0, int(self._tuples_per_second * PART_SECONDS)
        while not self._stopped.wait(PART_SECONDS):
            if self._flowing.is_set() and written - self.consumed() < self._most_waiting:
                self.write(count)
                written += count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


class LogFeeding(InputFeed):
    """An embedded log."""

    def __init__(
        self,
        path: Path,
        *,
        clock_us: Callable[[], int] = now_micros,
        tuples_per_second: int = TUPLES_A_SECOND,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        super().__init__(tuples_per_second, most_waiting)
        self.address = str(create_log(path, "value bigint", stream=STREAM).path)
        self._writer = LogWriter(path, sync=False, clock=clock_us)

    def write(self, count: int) -> None:
        end = self._writer.end()
        self._writer.append(pa.table({"value": np.arange(end, end + count)}))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._writer.close()


class KafkaFeeding(InputFeed):
    """A topic of two partitions."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self.address = f"{SCHEME}{servers}/{topic}"
        self.servers, self.topic = servers, topic
        self._target = KafkaTarget(servers, topic, partitions=2)
        self._written = 0

    def write(self, count: int) -> None:
        try:
            for number in range(self._written, self._written + count):
                self._target.put(json.dumps({"value": number}).encode(), number % 2)
            self._target.close()
        except FloodwayError:
            return  # the broker is away; what it took or not, its offsets say
        self._written += count
