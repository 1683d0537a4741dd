"""`floodway demo` from start to end, as a new user runs it, only shorter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # a Spark of its own, a calibration and three runs: above a minute
@pytest.mark.spark
def test_the_demo_runs_and_ends_in_a_picture_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "floodway.cli.main", "demo", "--seconds", "15s", "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(done.stdout)
    assert body["rate"] == pytest.approx(2 * body["capacity"])
    for key in ("without", "with", "sample"):
        run = body[key]
        offered, processed = sum(run["offered"].values()), sum(run["processed"].values())
        assert 10 * body["rate"] < offered < 16 * body["rate"]
        assert 0 < processed <= offered
        assert run["score"] <= run["value"] <= run["optimum"]
    assert body["without"]["worst_error"] is None
    assert body["sample"]["worst_error"] < 0.2 and body["with"]["worst_error"] < 0.2
    ledger, made = body["with"]["ledger"], (body["with"]["offered"], body["with"]["warmed"])
    assert ledger["offered"] == sum(sum(part.values()) for part in made) == ledger["kept"] + ledger["dropped"]
    assert (out / "demo.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "shop" in (out / "report.html").read_text(encoding="utf-8")
    assert "page: http://127.0.0.1:" in done.stderr
    assert [f"picture of {count} of 3 runs" in done.stderr for count in (1, 2, 3)] == [True] * 3
    assert "Exception" not in done.stderr and "ERROR" not in done.stderr
