"""`floodway demo` from start to end, as a new user runs it, only shorter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # a Spark of its own and three runs: above half a minute
@pytest.mark.spark
def test_the_demo_runs_and_ends_in_a_plot_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "floodway.cli.main", "demo", "--seconds", "15", "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(done.stdout)
    assert (body["without"]["mode"], body["with"]["mode"]) == ("off", "enforce")
    for run in (body["without"], body["with"]):
        assert run["reconciled"] is True
        assert sum(run["offered"].values()) > 0
    assert body["without"]["dropped"] == {}
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "with Floodway" in text and "without Floodway" in text
    assert "page: http://127.0.0.1:" in done.stderr
