"""Fetch what the tests on real clusters need into the project's cache: HDFS, YARN, an S3 server, and S3's client.

    .venv/bin/python -m scripts.fetch_hadoop            # prints progress, ends with the folders

Hadoop comes from the public Java repository, as Kafka does (`fetch_kafka.py`, where the cache is); the S3 server (moto)
from the Python registry into an environment of its own, so that its many dependencies are not the project's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

from floodway.errors import FloodwayError
from scripts.fetch_kafka import FetchError, JarSet, cache, fetch

# The version that PySpark 4.3 has of the clients. JUnit and a logging binding are not among the artifact's own
# dependencies; it does not start without the first, and says nothing without the second.
CLUSTER = JarSet(
    name="hadoop-cluster-3.5.0",
    artifacts=(
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.junit.jupiter:junit-jupiter-api:5.13.4",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    proof="hadoop-client-minicluster-3.5.0.jar",
)
# YARN's managers also want what the artifact above leaves out: certificates.
YARN = JarSet(
    name="hadoop-yarn-3.5.0",
    artifacts=("org.bouncycastle:bcpkix-jdk18on:1.82",),
    proof="bcpkix-jdk18on-1.82.jar",
)
S3_CLIENT = JarSet(
    name="hadoop-aws-3.5.0",
    artifacts=("org.apache.hadoop:hadoop-aws:3.5.0",),
    proof="hadoop-aws-3.5.0.jar",
    inside_spark=True,
)
# Without moto's extra `server`, which installs what all of Amazon's services need.
S3_SERVER = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")


def fetch_s3_server(*, say: Callable[[str], None] = print) -> Path:
    """The command that serves S3, installed if it is not in the cache. Raises `FetchError` if it cannot be had."""
    folder = cache() / "s3-server-5.2.5"
    command = folder / "bin" / "moto_server"
    if not command.exists():
        say(f"installing {S3_SERVER[0]} ...")
        cache().mkdir(parents=True, exist_ok=True)
        # Commands of an environment name its folder, so it is made in place; pip writes this command last.
        venv.create(folder, with_pip=True, clear=True)
        with tempfile.TemporaryFile("w+") as said:
            install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *S3_SERVER]
            if subprocess.run(install, stdout=said, stderr=said, check=False).returncode:
                said.seek(0)
                tail = said.read().strip().splitlines()[-1:]
                raise FetchError(
                    f"{S3_SERVER[0]} could not be installed ({' '.join(tail)})",
                    hint="Check the network and pip's settings; then try again",
                )
    return command


def main() -> int:
    """Fetch everything."""
    try:
        for jars in (CLUSTER, YARN, S3_CLIENT):
            fetch(jars, say=lambda text: print(text, flush=True))
            print(cache() / jars.name)
        print(fetch_s3_server().parents[1])
    except FloodwayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
