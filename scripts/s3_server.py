"""A server that speaks S3 on loopback, for tests and for trying things out; what it holds is gone with it.

.venv/bin/python -m scripts.s3_server            # says its address, and runs until Ctrl-C
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from floodway.agent.wire.ports import free_ports
from scripts.fetch_hadoop import fetch_s3_server

START_SECONDS = 120.0  # a bound for a broken start, not an expectation
KEYS = {"AWS_ACCESS_KEY_ID": "floodway", "AWS_SECRET_ACCESS_KEY": "floodway", "AWS_REGION": "us-east-1"}
"""It takes any keys; clients refuse to do without."""


class S3Error(RuntimeError):
    """A server that did not start; carries the end of its log."""


class S3Server:
    """One server. Use it as a context manager, or call `start` and `stop`."""

    def __init__(self, command: Path, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self._command = command
        self._log = folder / "s3.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The endpoint, `http://host:port`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What clients that go by environment variables need."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """What Spark needs for `s3a:`."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": KEYS["AWS_REGION"],
            "spark.hadoop.fs.s3a.access.key": KEYS["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": KEYS["AWS_SECRET_ACCESS_KEY"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def start(self) -> None:
        """Start the process and wait until it answers."""
        with self._log.open("ab") as log:
            command = [str(self._command), "-H", "127.0.0.1", "-p", str(self._port)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
                raise S3Error(f"the S3 server did not start:\n{tail}")
            time.sleep(0.1)

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")):
            pass

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

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False


def main() -> int:
    """Serve until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="floodway-s3-") as folder, S3Server(fetch_s3_server(), Path(folder)) as one:
        one.make_bucket("state")
        print(f"{one.url}, bucket state", flush=True)
        try:
            one.wait()
        except KeyboardInterrupt:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
