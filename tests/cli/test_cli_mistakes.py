"""What a new user gets wrong, command by command: one sentence that says what to do, before anything slow starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.agent.loop.run_files import save_network
from floodway.cli import main
from floodway.errors import FloodwayError
from floodway.job.ledger.ledger import Ledger
from floodway.job.store.store import LocalStore
from floodway.network.file import load_network
from tests.dashboard.made_state import MadeJob

NETWORKS = Path(__file__).parents[2] / "examples" / "networks"
NET = str(NETWORKS / "figure1.yaml")
STREAM = """
version: 1
name: {name}
streams: {{clicks: {{max_rate: 10, log: "{log}"}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators: {{work: {{node: A, from: clicks, cost: 0.001}}}}
outputs: {{q: {{from: work}}}}
"""
NO_SPARK = """#!/bin/sh
case "$*" in *XshowSettings*) printf ' java.home = {home}\\n java.specification.version = 21\\n' >&2; exit 0;; esac
echo "this Java starts nothing" >&2
exit 1
"""
"""A Java that says it is one and starts nothing: no mistake below may come as far as that."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file, a run of another network, and a Java of no use."""
    (tmp_path / "file").touch()
    save_network(tmp_path / "other", load_network(NETWORKS / "split.yaml"))
    Ledger(LocalStore(tmp_path / "other")).append([])
    for name, log in (("no-log", "nowhere.log"), ("no-broker", "kafka://127.0.0.1:1/clicks")):
        (tmp_path / f"{name}.yaml").write_text(STREAM.format(name=name, log=log), encoding="utf-8")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(NO_SPARK.format(home=tmp_path / "java"))
    java.chmod(0o755)
    return tmp_path


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    """All commands, as `floodway` has them."""
    if not main.app.registered_commands:
        main.register()
    return main.app


def floodway(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "floodway.cli.main", *arguments]
    environment = {**os.environ, "JAVA_HOME": str(place / "java")}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"run {NET} --target -1", "--target -1 is not a duration above 0"),
        (f"run {NET} --settle -1", "--settle -1 is not a duration of at least 0"),
        (f"run {NET} --side-output -1", "--side-output -1 is not a whole number"),
        (f"run {NET} --on-loss shrug", "--on-loss 'shrug' is not known. Known: fail, skip"),
        (f"run {NET} --drop rows", "--drop 'rows' is not known. Known: hash, range"),
        (f"run {NET} --state file/inside", "file is a file. Give another folder"),
        (f"run {NET} --state other", "holds a run of the network"),
        (f"run {NET} --report nowhere/report.json", "there is no folder nowhere"),
        ("run no-log.yaml", "Make it with `floodway feed nowhere.log`"),
        ("run no-broker.yaml", "Start the broker or check the address"),
        (f"up {NET} --target 0", "--target 0 is not a duration above 0"),
        (f"up {NET} --state file", "file is a file"),
        (f"up {NET} --state other", "holds a run of the network"),
        (f"up {NET} --key-file nowhere", "key file nowhere cannot be read"),
        (f"up {NET} --controller bach", "Did you mean batch?"),
        (f"audit {NET} --state other", "holds a run of the network"),
        (f"measure {NET} --tuples 0", "--tuples 0 is not above 0"),
        (f"measure {NET} --write nowhere/net.yaml", "there is no folder nowhere"),
        ("demo --seconds 0", "--seconds 0 is not a duration above 0"),
        ("demo --target soon", "--target soon is not a duration above 0"),
        ("dashboard --seconds -1s", "--seconds -1s is not a duration of at least 0"),
        ("demo --out file", "file is a file"),
        ("feed file --seconds 1", "file is a file"),
        ("reproduce staying-fit-table1 --html nowhere/x.html", "there is no folder nowhere"),
        ("reproduce staying-fit-table1 --plots file", "file is a file"),
        ("report other --html java", "java is a folder. Name a file"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    place: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("JAVA_HOME", str(place / "java"))
    result = CliRunner().invoke(app, line.split())
    assert isinstance(result.exception, FloodwayError) and result.exception.exit_code == 2
    assert said in str(result.exception)
    assert "\n" not in str(result.exception) and result.output == ""


def test_a_java_that_does_not_start_spark_is_told_without_a_traceback(place: Path) -> None:
    done = floodway(place, "run", NET, "--seconds", "1")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: Spark did not start on the Java in {place / 'java'}") and "JAVA_HOME" in last
    assert "Traceback" not in done.stderr


def test_what_the_system_refuses_is_told_without_a_traceback(place: Path) -> None:
    job = MadeJob(place / "demo", 1_000)
    job.start()
    job.run(2)
    done = floodway(place, "report", "demo", "--html", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device. Check the path, the room on its disk")
    assert len(done.stderr.strip().splitlines()) == 1
