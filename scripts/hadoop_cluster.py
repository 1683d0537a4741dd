"""A real HDFS on loopback, in one Java process, for tests and for trying things out; its data is gone with it.

.venv/bin/python -m scripts.hadoop_cluster            # says its address, and runs until Ctrl-C
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from floodway.spark.session.java import find_java
from scripts.fetch_hadoop import CLUSTER
from scripts.fetch_kafka import fetch

START_SECONDS = 180.0  # a bound for a broken start, not an expectation


class ClusterError(RuntimeError):
    """A cluster that did not start; carries the end of its log."""


class Hdfs:
    """A name node and a data node. Use it as a context manager, or call `start` and `stop`."""

    def __init__(self, jars: Sequence[Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / "hdfs.log"
        self._details = folder / "details.json"
        self._classpath = ":".join(map(str, jars))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The address, `hdfs://host:port`."""
        return f"hdfs://127.0.0.1:{json.loads(self._details.read_text())['namenode_port']}"

    def start(self) -> None:
        """Start the process and wait until it has written where it listens, its last step."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(find_java() / "bin" / "java"), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                    *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self._classpath),
                    *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-writeDetails", str(self._details)),
                    # Without: users other than the one that began it may not write, as on a cluster of one user.
                    *("-D", "dfs.permissions.enabled=false"),
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not (self._details.exists() and self._details.stat().st_size):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ClusterError(f"HDFS did not start:\n{self.log_tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def wait(self) -> None:
        """Wait until the process ends."""
        if self._process is not None:
            self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The end of what the process printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Hdfs:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> int:
    """Serve until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="floodway-hdfs-") as folder, Hdfs(fetch(CLUSTER), Path(folder)) as one:
        print(one.uri, flush=True)
        try:
            one.wait()
        except KeyboardInterrupt:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
