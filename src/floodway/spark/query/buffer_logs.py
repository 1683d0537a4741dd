"""A buffer's look at its logs: where they end, and when a tuple came, each for the price of one small read."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from floodway.errors import FloodwayError
from floodway.job.clocks import PROCESS_CLOCK, SteadyClock
from floodway.network.model import Network
from floodway.spark.log.inputs import open_input
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.query.layout import Layout
from floodway.spark.source.backend import Backend
from floodway.spark.source.kafka import KafkaBackend


class QueueLog:
    """The log of one stream, opened once. A broker that does not answer leaves the last ends known."""

    def __init__(self, backend: Backend, clock: SteadyClock = PROCESS_CLOCK) -> None:
        self._backend = backend
        self._clock = clock
        self._ends = backend.latest()
        # A topic's records are read by the thousand: single ones are looked up beside that.
        self._times = backend.record_times() if isinstance(backend, KafkaBackend) else None

    @classmethod
    def of(cls, network: Network, layout: Layout, stream: str, clock: SteadyClock = PROCESS_CLOCK) -> QueueLog:
        """The log that a stream of the network is read from."""
        return cls(open_input(layout.stream(network, stream)), clock)

    def first(self) -> dict[int, int]:
        """The oldest position of each partition: where a query without a checkpoint starts."""
        return self._backend.earliest()

    def ends(self) -> dict[int, int]:
        """The position after the newest tuple of each partition."""
        with suppress(FloodwayError):
            self._ends = self._backend.latest()
        return dict(self._ends)

    def arrival_seconds(self, partition: int, position: int) -> float | None:
        """When the tuple at `position` came, as its `_arrival` says, by the clock; None if that cannot be told.

        In a topic that is the time of creation or of append, as the topic is set.
        """
        arrived = self._arrived(partition, position)
        return None if arrived is None else self._clock.steady(arrived)

    def _arrived(self, partition: int, position: int) -> float | None:
        if self._times is not None:
            return self._times.at(partition, position)
        try:
            for _, batch in self._backend.read(partition, [(position, position + 1)]):
                arrived: datetime = batch.column(ARRIVAL)[0].as_py()
                return arrived.timestamp()
        except FloodwayError:  # retired meanwhile: the source will tell
            return None
        return None
