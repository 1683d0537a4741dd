"""A standalone Spark cluster on this machine whose workers see neither the driver's folder nor each other's.

Each worker runs in a mount namespace of its own, with an empty file system over the folder that is to be the driver's:
what lies there is as far away for its executors as another machine's disk.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.server_process import ServerProcess
from floodway.spark.session.java import find_java

QUICK = ["SPARK_DAEMON_MEMORY=256m", "SPARK_DAEMON_JAVA_OPTS=-XX:TieredStopAtLevel=1"]
"""The optimising compiler takes more than it gives in a process of a few minutes."""
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
JARS = Path(pyspark.__file__).parent / "jars"


def can_hide() -> bool:
    """Whether this machine lets us mount something in a namespace of our own."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def hiding(folder: Path, command: list[str]) -> list[str]:
    """The command in a mount namespace of its own, with an empty file system over the folder."""
    hide = f'mount --make-rprivate / && mount -t tmpfs none "{folder}" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", hide, "sh", *command]


def processes(*words: bytes) -> dict[int, int]:
    """The processes that run now and have all these words in their command, each with its parent."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended since
            continue
        if all(word in command for word in words):
            found[int(process.name)] = parent
    return found


class Daemon(ServerProcess):
    """A master or a worker; it answers once its page does."""

    def __init__(self, folder: Path, arguments: list[str], page: int, hidden: Path | None = None) -> None:
        super().__init__(folder)
        self.what = arguments[0]
        self._arguments = arguments
        self._page = page
        self._hidden = hidden

    def command(self) -> list[str]:
        """See `ServerProcess`."""
        run = ["env", f"JAVA_HOME={find_java()}", *QUICK, str(SPARK_CLASS), *self._arguments]
        return run if self._hidden is None else hiding(self._hidden, run)

    def answers(self) -> bool:
        """See `ServerProcess`."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/", timeout=5):
                return True
        except OSError:
            return False


class Standalone:
    """A master and two workers of one core each; `hidden` is the folder that only the driver sees."""

    environment: Mapping[str, str] = {}
    """What the driver's process needs to find it: nothing but its address."""

    def __init__(self, folder: Path) -> None:
        self.hidden = folder / "driver"
        self.hidden.mkdir(parents=True)
        port, page, *pages = free_ports(4)
        self.master = f"spark://127.0.0.1:{port}"
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "700m"]
        self.workers = [
            Daemon(
                folder / f"worker-{one}",
                [*worker, "--webui-port", str(one), "--work-dir", str(folder / f"work-{one}"), self.master],
                one,
                self.hidden,
            )
            for one in pages
        ]
        self._all = [Daemon(folder / "master", [*master, "--webui-port", str(page)], page), *self.workers]

    @property
    def settings(self) -> dict[str, str]:
        """What a driver on it needs."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executor.memory": "600m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
        }

    def executors(self) -> list[int]:
        """The processes of the executors that run now, children of the workers."""
        workers = {daemon.pid for daemon in self.workers}
        return [pid for pid, parent in processes(b"CoarseGrainedExecutorBackend").items() if parent in workers]

    def __enter__(self) -> Self:
        for daemon in self._all:
            daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.executors():
            os.kill(pid, 9)
        for daemon in reversed(self._all):
            daemon.stop()
