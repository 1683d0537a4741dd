"""A server that speaks S3 on loopback, for tests and for trying things out; what it holds is gone with it.

.venv/bin/python -m scripts.s3_server            # says its address, and runs until Ctrl-C
"""

from __future__ import annotations

import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from floodway.agent.wire.ports import free_ports
from floodway.experiments.chaos.server_process import ServerProcess
from scripts.fetch_hadoop import fetch_s3_server
from scripts.serving import serve

KEYS = {"AWS_ACCESS_KEY_ID": "floodway", "AWS_SECRET_ACCESS_KEY": "floodway", "AWS_REGION": "us-east-1"}
"""It takes any keys; clients refuse to do without."""


class S3Server(ServerProcess):
    """One server."""

    what = "the S3 server"

    def __init__(self, command: Path, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self._command = command

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

    def command(self) -> list[str]:
        """See `ServerProcess`."""
        return [str(self._command), "-H", "127.0.0.1", "-p", str(self._port)]

    def answers(self) -> bool:
        """See `ServerProcess`."""
        try:
            with urllib.request.urlopen(f"{self.url}/", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")):
            pass


def main() -> int:
    """Serve until Ctrl-C; clients make their own buckets."""
    with tempfile.TemporaryDirectory(prefix="floodway-s3-") as folder:
        server = S3Server(fetch_s3_server(), Path(folder))
        return serve(server, server.url)


if __name__ == "__main__":
    sys.exit(main())
