"""A real HDFS on loopback, in one Java process, for tests and for trying things out; its data is gone with it.

.venv/bin/python -m scripts.hadoop_cluster            # says its address, and runs until Ctrl-C
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from floodway.experiments.chaos.server_process import ServerProcess
from floodway.spark.session.java import find_java
from scripts.fetch_hadoop import CLUSTER
from scripts.fetch_kafka import fetch
from scripts.serving import serve


class Hdfs(ServerProcess):
    """A name node and a data node."""

    what = "HDFS"

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        super().__init__(folder)
        self._details = folder / "details.json"
        self._classpath = ":".join(map(str, jars))

    @property
    def uri(self) -> str:
        """The address, `hdfs://host:port`."""
        return f"hdfs://127.0.0.1:{json.loads(self._details.read_text())['namenode_port']}"

    def command(self) -> list[str]:
        """See `ServerProcess`."""
        return [
            *(str(find_java() / "bin" / "java"), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self._classpath),
            *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-writeDetails", str(self._details)),
            # Without: users other than the one that began it may not write, as on a cluster of one user.
            *("-D", "dfs.permissions.enabled=false"),
        ]

    def answers(self) -> bool:
        """Where it listens is written down when all else is done."""
        return self._details.exists() and self._details.stat().st_size > 0


def main() -> int:
    """Serve until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="floodway-hdfs-") as folder:
        return serve(Hdfs(fetch(CLUSTER), Path(folder)), f"the address in {folder}/details.json")


if __name__ == "__main__":
    sys.exit(main())
