"""The one line through Spark Connect: tests of `tests/matrix` against a server of their own, in a process of theirs.

A process has sessions of one kind only: beside the Classic session of the other tests there can be no Connect client.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from floodway.experiments.chaos.clocks import set_clock
from floodway.spark.session.java import find_java

MATRIX = Path(__file__).resolve().parents[1] / "matrix"


@pytest.mark.spark
def test_the_one_line_through_connect(tmp_path: Path) -> None:
    missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
    if missing:
        pytest.skip(f"NO SPARK CONNECT: {', '.join(missing)} not installed; `make setup` installs them")
    environ = {**os.environ, "FLOODWAY_TEST_SESSION": "connect", "JAVA_HOME": str(find_java())}
    environ["PYSPARK_PYTHON"] = sys.executable
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if set_clock.missing() is None:  # a client and its server are two machines
        environ["FLOODWAY_TEST_SERVER_AHEAD"] = "3600"
    chosen = "counted_to_the_tuple or replay or kill_switch or share_by"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(MATRIX), "--basetemp", str(tmp_path / "runs"), "-k", chosen, str(MATRIX)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "4 passed" in done.stdout
