"""What the end of a test run says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

def test_kills():
    print("6 points, seed 4: ['cut']")
    print("something else")

def test_of_another_machine():
    pytest.skip("NO DISK")
"""


def test_seeds_of_passed_tests_and_reasons_of_skips_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(TESTS)
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", "/dev/null", f"--rootdir={tmp_path}", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "test_kills: 6 points, seed 4: ['cut']" in done.stdout.splitlines()
    assert "1 NOT RUN: Skipped: NO DISK" in done.stdout.splitlines()
    assert "something else" not in done.stdout
