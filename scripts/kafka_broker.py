"""A real Kafka broker for tests and for trying things out: one node (KRaft), on free loopback ports.

    .venv/bin/python -m scripts.kafka_broker            # says its address, and runs until Ctrl-C

Its data lies in a folder of its own and is gone with the run.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from floodway.errors import FloodwayError
from floodway.experiments.chaos import broker
from floodway.experiments.chaos.broker import BrokerError
from scripts.fetch_kafka import BROKER, fetch

__all__ = ["Broker", "BrokerError"]


class Broker(broker.Broker):
    """A broker with topics made by hand, for tests."""

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic, wait until it is there, and return its name."""
        admin = self._admin()  # named, since its calls end with it
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(timeout=30)
        return name


def main() -> int:
    """Run a broker until this process is interrupted or terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        jars = fetch(BROKER)
        with tempfile.TemporaryDirectory(prefix="floodway-kafka-") as folder, Broker(jars, Path(folder)) as broker:
            print(f"Kafka at {broker.address}. Ctrl-C ends it.", flush=True)
            broker.wait()
    except KeyboardInterrupt:
        return 0
    except FloodwayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("error: the broker has ended by itself", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
