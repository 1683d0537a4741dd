"""A real Kafka broker of one node (KRaft) on free loopback ports, which can be killed, held up and started again.

Its data lies in a folder of its own; a second start goes on with the same data and port.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.server_process import ServerProcess, ServerStartError
from floodway.spark.session.java import find_java

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
# One node: internal topics cannot have three replicas, and need not wait for other members of a group.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# Whoever misspells a topic shall be told, not be given one.
auto.create.topics.enable=false
"""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


class Broker(ServerProcess):
    """One broker process."""

    what = "Kafka"

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        super().__init__(folder)
        self._settings = folder / "server.properties"
        self._classpath = ":".join(str(jar.absolute()) for jar in jars)
        self.port, controller = free_ports(2)
        data = folder / "data"
        data.mkdir(parents=True)
        self._settings.write_text(_SETTINGS.format(port=self.port, controller=controller, data=data))
        (folder / "log4j2.properties").write_text(_LOGGING)
        # Without its highest bit: one identity in 64 would begin with a dash, and be taken for an option.
        cluster = urlsafe_b64encode((uuid.uuid4().int >> 1).to_bytes(16)).decode().rstrip("=")
        with self.log.open("ab") as log:
            done = subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)),
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode:
            raise ServerStartError(f"the broker's storage could not be formatted:\n{self.log_tail()}")

    @property
    def address(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._settings))

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass  # cheaper than a client, and quick to refuse
            return bool(self._admin().list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False

    def strike(self, number: signal.Signals, hold_seconds: float) -> list[int]:
        """Kill or hold up the broker, and bring it back after so many seconds; the process that was hit."""
        if self._process is None:
            return []
        hit = self.pid
        if number == signal.SIGKILL:
            self.kill()
        else:
            os.kill(hit, number)
        time.sleep(hold_seconds)
        if number == signal.SIGKILL:
            self.start()
        else:
            os.kill(hit, signal.SIGCONT)
        return [hit]

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = [str(find_java() / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
        return [*java, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", main, *arguments]

    def _admin(self) -> AdminClient:
        # The client's own complaints about a broker that is still starting would drown the test's output.
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})
