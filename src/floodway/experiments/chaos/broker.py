"""A real Kafka broker of one node (KRaft) on free loopback ports, which can be killed, held up and started again.

Its data lies in a folder of its own; `restart` goes on with the same data and port.
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
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from floodway.agent.wire.ports import free_ports
from floodway.errors import FloodwayError
from floodway.spark.session.java import find_java

START_SECONDS = 120.0  # a bound for a broken start, not an expectation: a start takes a few seconds

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


class BrokerError(FloodwayError):
    """A broker that did not start; carries the end of its log."""


class Broker:
    """One broker process. Use it as a context manager, or call `start` and `stop`."""

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        self._folder = folder
        self._log = folder / "broker.log"
        self._settings = folder / "server.properties"
        self._classpath = ":".join(map(str, jars))
        self._process: subprocess.Popen[bytes] | None = None
        self.port, controller = free_ports(2)
        data = folder / "data"
        data.mkdir(parents=True)
        self._settings.write_text(_SETTINGS.format(port=self.port, controller=controller, data=data))
        (folder / "log4j2.properties").write_text(_LOGGING)
        # Without its highest bit: one identity in 64 would begin with a dash, and be taken for an option.
        cluster = urlsafe_b64encode((uuid.uuid4().int >> 1).to_bytes(16)).decode().rstrip("=")
        with self._log.open("ab") as log:
            done = subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)),
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode:
            raise BrokerError(f"the broker's storage could not be formatted:\n{self.log_tail()}")

    @property
    def address(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process and wait until it answers a client."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"the broker did not start:\n{self.log_tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it in good order; kill it if that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it as a crash would, in the middle of whatever it does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def strike(self, number: signal.Signals, hold_seconds: float) -> list[int]:
        """Kill or hold up the broker, and bring it back after so many seconds; the process that was hit."""
        if self._process is None:
            return []
        hit = self._process.pid
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

    def wait(self) -> None:
        """Wait until the process ends."""
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        """Start it again on the same data and port."""
        self.stop()
        self.start()

    def log_tail(self, lines: int = 20) -> str:
        """The end of what the process printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = [str(find_java() / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
        return [*java, f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}", main, *arguments]

    def _admin(self) -> AdminClient:
        # The client's own complaints about a broker that is still starting would drown the test's output.
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass  # cheaper than a client, and quick to refuse
            return bool(self._admin().list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False
