"""A real Kafka broker for tests and for trying things out: one node (KRaft), on free loopback ports.

    .venv/bin/python -m scripts.kafka_broker            # says its address, and runs until Ctrl-C

Its data lies in a folder of its own and is gone with the run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from floodway.experiments.chaos import broker
from floodway.experiments.chaos.server_process import ServerStartError
from scripts.fetch_kafka import BROKER, fetch
from scripts.serving import serve

WAIT_SECONDS = 300


class Broker(broker.Broker):
    """A broker with topics made by hand, for tests."""

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic, wait until clients find it, and return its name."""
        admin = self._admin()  # named, since its calls end with it
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(timeout=WAIT_SECONDS)
        # The controller has it then; who asks the broker is told of it a moment later.
        end = time.monotonic() + WAIT_SECONDS
        while True:
            found = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name]
            if found.error is None and [one.leader for one in found.partitions.values()].count(1) == partitions:
                return name
            if time.monotonic() > end:
                raise ServerStartError(f"topic {name} is not there after {WAIT_SECONDS} s: {found.error}")
            time.sleep(0.05)


def main() -> int:
    """Run a broker until this process is interrupted or terminated."""
    with tempfile.TemporaryDirectory(prefix="floodway-kafka-") as folder:
        broker = Broker(fetch(BROKER), Path(folder))
        return serve(broker, broker.address)


if __name__ == "__main__":
    sys.exit(main())
