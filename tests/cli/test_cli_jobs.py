"""`floodway set`, `top` and `audit` on the files of a job, as another process sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from floodway.agent.federation.leases import Lease
from floodway.agent.wire.ports import free_ports
from floodway.cli.set import set as set_
from floodway.cli.top import top
from floodway.contracts.federation_file import parse_federation
from floodway.errors import InputError
from floodway.job.shed_state import ShedFiles
from tests.agent.federation_world import FILE, agent


def floodway(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "floodway.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def invoke(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    status = {
        "name": "clicks",
        "time_us": int(time.time() * 1e6),
        "mode": "enforce",
        "target_seconds": 2.0,
        "latency_seconds": 1.9,
        "rates": {"s1": 1000.0},
        "keeps": {"s1": 0.25, "a->b": 0.5},
        "load": {"A": 0.93},
        "loss": 0.75,
        "unreachable": False,
        "floor_seconds": None,
    }
    folder = tmp_path / "clicks"
    folder.mkdir()
    (folder / "status.json").write_text(json.dumps(status))
    return folder


def test_set_leaves_the_wish_for_the_job(job: Path) -> None:
    answer = floodway("set", "clicks", "--mode", "off", "--state", str(job.parent))
    assert answer.returncode == 0
    assert ShedFiles(job).read_mode() == "off"


def test_a_network_of_processes_is_switched_and_shown_as_a_whole_or_by_node(job: Path, tmp_path: Path) -> None:
    status = json.loads((job / "status.json").read_text())
    nodes = {name: tmp_path / "net" / "nodes" / name for name in ("A", "B", "coordinator")}
    for name, folder in nodes.items():
        folder.mkdir(parents=True)
        if name != "coordinator":
            (folder / "status.json").write_text(json.dumps({**status, "name": f"net: {name}"}))
    waiting = {"name": "net: B", "phase": "waiting", "waiting_for": ["a1->b1"], "time_us": status["time_us"]}
    (nodes["B"] / "status.json").write_text(json.dumps(waiting))

    def said(command: Callable[..., None], *arguments: str) -> str:
        app = typer.Typer()
        app.command()(command)
        answer = CliRunner().invoke(app, [*arguments, "--state", str(tmp_path / "net")])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    said(set_, "net", "--mode", "off")
    assert said(set_, "A", "--mode", "observe") == "A: observe from the next micro-batch on\n"
    assert [ShedFiles(folder).read_mode() for folder in nodes.values()] == ["observe", "off", None]
    shown = said(top, "net", "--once")
    assert "net: A  ·  enforce" in shown and "net: B  ·  waiting" in shown and "a1->b1" in shown
    assert list(json.loads(said(top, "net", "--json"))["nodes"]) == ["A", "B"]
    assert json.loads(said(top, "A", "--json"))["name"] == "net: A"


def test_set_refuses_unknown_jobs_and_modes(job: Path) -> None:
    unknown = floodway("set", "click", "--mode", "off", "--state", str(job.parent))
    assert unknown.returncode == 2
    assert "Known there: clicks" in unknown.stderr
    wrong = floodway("set", "clicks", "--mode", "maybe", "--state", str(job))
    assert wrong.returncode == 2
    assert "maybe" in wrong.stderr and ShedFiles(job).read_mode() is None


def test_set_looks_at_the_mode_before_the_job(tmp_path: Path) -> None:
    wrong = invoke(set_, "nobody", "--mode", "on", "--state", str(tmp_path))
    assert isinstance(wrong.exception, InputError)
    assert "mode 'on' is not known" in str(wrong.exception)


def test_a_participant_is_shown_and_has_no_mode_to_set(tmp_path: Path) -> None:
    """With the status that a real one tells: it has a journal, a load and contracts, and sheds one of two fragments."""
    a, b = free_ports(2)
    member = agent(parse_federation(FILE.format(a=a, b=b)), "A", tmp_path, lambda step: None)
    for name, keep in (("f0", 0.4), ("f1", 1.0)):
        member._add(name, Lease(name, 1, "A", 0.0, time.time() + 60))
        member._figures.keeps = {**member._figures.keeps, name: keep}
    try:
        (tmp_path / "A" / "status.json").write_text(json.dumps(member.status()), encoding="utf-8")
    finally:
        member.journal.close()
    shown = invoke(top, "A", "--state", str(tmp_path / "A"), "--once")
    assert shown.exit_code == 0, shown.exception
    for part in ("A  ·  participant", "of 1 CPU", "keep 40.0%", "0 done, 0 failed, 0 under way"):
        assert part in shown.output
    refused = invoke(set_, "A", "--mode", "off", "--state", str(tmp_path / "A"))
    assert "is a participant of a federation and has no mode" in str(refused.exception)
    assert ShedFiles(tmp_path / "A").read_mode() is None


def test_top_tells_in_observe_what_enforcing_would_drop(job: Path) -> None:
    status = json.loads((job / "status.json").read_text())
    (job / "status.json").write_text(json.dumps({**status, "mode": "observe", "loss": 0.0}))
    assert "would drop" in invoke(top, "clicks", "--state", str(job), "--once").output
    (job / "status.json").write_text(json.dumps({**status, "mode": "off", "loss": 0.0}))
    assert "would drop" not in invoke(top, "clicks", "--state", str(job), "--once").output


def test_top_shows_what_the_status_says(job: Path) -> None:
    shown = floodway("top", "clicks", "--state", str(job), "--once").stdout
    for part in ("enforce", "1.90 s", "1,000 tuples/s", "25.0%", "a->b", "75.0%"):
        assert part in shown
    body = json.loads(floodway("top", "clicks", "--state", str(job), "--json").stdout)
    assert body["keeps"] == {"s1": 0.25, "a->b": 0.5}


def test_top_before_the_first_batch_says_so(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    answer = floodway("top", "new", "--state", str(tmp_path), "--once")
    assert answer.returncode == 2
    assert "first micro-batch" in answer.stderr


def test_audit_without_a_ledger_says_where_it_looked(tmp_path: Path) -> None:
    answer = floodway("audit", "examples/networks/split.yaml", "--state", str(tmp_path))
    assert answer.returncode == 2
    assert "no ledger" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "maybe"], "mode 'maybe'"),
        (["--rates", "zz=3"], "unknown stream"),
        (["--seconds", "0"], "--seconds"),
        (["--controller", "pidd"], "Did you mean"),
    ],
)
def test_run_refuses_bad_options_before_spark_starts(arguments: list[str], message: str, tmp_path: Path) -> None:
    answer = floodway("run", "examples/networks/split.yaml", *arguments, "--state", str(tmp_path / "run"))
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
