"""YARN on this machine: a resource manager, and a node manager whose containers do not see the driver's folder."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.server_process import ServerProcess
from floodway.spark.session.java import find_java
from tests.cluster.standalone import JARS, hiding, processes

SERVER = "org.apache.hadoop.yarn.server"
LEAST_MEMORY_MB, MEMORY_MB = 128, 4096


class Manager(ServerProcess):
    """The resource manager or a node manager; it answers once its page does."""

    def __init__(self, folder: Path, main: str, classpath: Sequence[Path], page: int, hidden: Path | None) -> None:
        super().__init__(folder)
        self.what = main
        self._classpath = classpath
        self._page = page
        self._hidden = hidden

    def command(self) -> list[str]:
        """See `ServerProcess`."""
        java = str(find_java() / "bin" / "java")
        run = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        run += ["-cp", ":".join(map(str, self._classpath)), f"{SERVER}.{self.what}"]
        environment = ["env", f"JAVA_HOME={find_java()}", *run]
        return environment if self._hidden is None else hiding(self._hidden, environment)

    def answers(self) -> bool:
        """See `ServerProcess`."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/ws/v1/{self._answer}", timeout=5):
                return True
        except OSError:
            return False

    @property
    def _answer(self) -> str:
        return "node/info" if self.what.endswith("NodeManager") else "cluster/info"


class Yarn:
    """Two managers; `hidden` is the folder that only the driver sees."""

    master = "yarn"

    def __init__(self, folder: Path, jars: Sequence[Path], file_system: str) -> None:
        self.hidden = folder / "driver"
        self.hidden.mkdir(parents=True)
        self._local = folder / "containers"
        self._conf = folder / "conf"
        self._conf.mkdir()
        page, node_page, *ports = free_ports(8)
        self._write("core-site.xml", {"fs.defaultFS": file_system})
        self._write("yarn-site.xml", self._yarn(page, node_page, ports))
        self._write("capacity-scheduler.xml", SCHEDULER)
        # Hadoop's jars lack the logging that the managers are written for; Spark has it.
        logging = [jar for name in ("1.2-api", "api", "core") for jar in JARS.glob(f"log4j-{name}-*.jar")]
        classpath = [self._conf, *jars, *logging]
        self._all = [
            Manager(folder / "resources", "resourcemanager.ResourceManager", classpath, page, None),
            Manager(folder / "node", "nodemanager.NodeManager", classpath, node_page, self.hidden),
        ]

    def _yarn(self, page: int, node_page: int, ports: Sequence[int]) -> dict[str, str]:
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        node = ("address", "localizer.address")
        at = {f"yarn.resourcemanager.{name}": port for name, port in zip(names, ports, strict=False)}
        at |= {f"yarn.nodemanager.{name}": port for name, port in zip(node, ports[len(names) :], strict=True)}
        at |= {"yarn.resourcemanager.webapp.address": page, "yarn.nodemanager.webapp.address": node_page}
        return {
            **{key: f"127.0.0.1:{port}" for key, port in at.items()},
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.hostname": "127.0.0.1",
            "yarn.nodemanager.local-dirs": str(self._local / "local"),
            "yarn.nodemanager.log-dirs": str(self._local / "logs"),
            "yarn.nodemanager.resource.memory-mb": str(MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.scheduler.minimum-allocation-mb": str(LEAST_MEMORY_MB),
            # This machine's disk is not YARN's: how full it is, and how much memory Java reserves, are no faults.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
        }

    def _write(self, name: str, properties: Mapping[str, str]) -> None:
        lines = [
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
            for key, value in properties.items()
        ]
        (self._conf / name).write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))

    @property
    def environment(self) -> dict[str, str]:
        """What the driver's process needs to find it."""
        return {"HADOOP_CONF_DIR": str(self._conf), "YARN_CONF_DIR": str(self._conf)}

    @property
    def settings(self) -> dict[str, str]:
        """What a driver on it needs. Spark's jars are on every machine: nothing is uploaded."""
        quick = "-XX:TieredStopAtLevel=1"
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": quick,
            "spark.executor.memory": "600m",
            "spark.executor.instances": "2",
            "spark.executor.extraJavaOptions": quick,
            "spark.executorEnv.JAVA_HOME": str(find_java()),
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
            "spark.yarn.appMasterEnv.JAVA_HOME": str(find_java()),
            "spark.yarn.am.memory": "384m",
            "spark.yarn.jars": f"local:{JARS}/*",
            "spark.sql.shuffle.partitions": "2",
        }

    def executors(self) -> list[int]:
        """The processes of the executors that run now, below the node manager's folder."""
        backends = processes(b"YarnCoarseGrainedExecutorBackend", str(self._local).encode())
        # A container's shell has the same words in its command; what it runs is its child.
        return [pid for pid, parent in backends.items() if parent in backends and pid not in backends.values()]

    def __enter__(self) -> Self:
        for manager in self._all:
            manager.start()
        return self

    def __exit__(self, *_: object) -> None:
        for manager in reversed(self._all):
            manager.stop()
        for pid in processes(str(self._local).encode()):
            os.kill(pid, 9)


SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # A share of the memory for application masters: the default of a tenth has no room for one here.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
    "yarn.scheduler.capacity.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
}
