"""What is read by its address: an embedded log's folder, or a Kafka topic as `kafka://host:port/topic`.

Both are read by the Floodway source, so positions and decisions travel in Spark's checkpoint either way, and a fragment
that moves to another participant goes on at the same record. Kafka values are JSON of the columns that the network file
or the catalogue entry declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.spark.log.kafka_links import is_topic, parse_kafka
from floodway.spark.source.backend import Backend, open_backend
from floodway.spark.source.options import parse_options

_ASK_SECONDS = "2"


def place(shared: Path, log: str) -> str:
    """Where a fragment's input is, from what the federation file says.

    >>> place(Path("shared"), "logs/clicks"), place(Path("shared"), "kafka://broker:9092/clicks")
    ('shared/logs/clicks', 'kafka://broker:9092/clicks')
    """
    return log if is_topic(log) else str(shared / log)


def source_options(address: str, schema: str | None = None) -> dict[str, str]:
    """The options of the Floodway source for an input; without a schema the values of a topic stay bytes."""
    if not is_topic(address):
        return {"path": address}
    servers, topic = parse_kafka(address)
    kind = {"valueFormat": "raw"} if schema is None else {"schema": schema}
    return {"kafka.bootstrap.servers": servers, "topic": topic, **kind}


def open_input(address: str, *, patient: bool = False) -> Backend:
    """A log or topic, to ask for its positions: a broker that does not answer soon is asked again later.

    With `patient` it gets as long as the source gives it, for who asks once: a busy broker takes seconds.
    """
    timeout = {} if patient else {"timeoutSeconds": _ASK_SECONDS}
    return open_backend(parse_options({**source_options(address), **timeout}))


class Arrivals:
    """How much has arrived in each input, all partitions together; opened once, asked at every tick.

    A broker that does not answer is no reason to stop: the last figure stays, and `silent` counts.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._backends = {name: open_input(address) for name, address in addresses.items()}
        self._totals = {
            name: sum(open_input(address, patient=True).latest().values()) for name, address in addresses.items()
        }
        self.silent = 0

    def totals(self) -> dict[str, int]:
        """Tuples that have ever arrived, by input."""
        for name, backend in self._backends.items():
            try:
                self._totals[name] = sum(backend.latest().values())
            except FloodwayError:
                self.silent += 1
        return dict(self._totals)
