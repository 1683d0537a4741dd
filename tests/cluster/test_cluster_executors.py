"""A second executor on a standalone cluster with dynamic allocation, because a shed asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.standalone import Standalone, can_hide
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_the_cluster_starts_the_executor_that_is_asked_for(tmp_path: Path) -> None:
    if not can_hide():
        pytest.skip("NO WORKERS WITHOUT A SHARED DISK: this machine lets us make no mount namespace (be root)")
    with Standalone(tmp_path) as cluster:
        driver = subprocess.run(
            [sys.executable, "-m", "tests.cluster.executors_driver", cluster.master, json.dumps(cluster.settings)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert driver.returncode == 0, driver.stderr[-3000:]
