"""`floodway set`, `top` and `audit` on the files of a job, as another process sees them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from floodway.agent.federation.leases import FragmentLease
from floodway.agent.wire.ports import free_ports
from floodway.cli.set import set as set_
from floodway.cli.top import top
from floodway.contracts.federation_file import parse_federation
from floodway.errors import InputError
from floodway.job.places import ShedFiles, note_place
from floodway.job.status.batches import Latency
from floodway.job.status.status import NodePart, Place, ProcessPart, Rates, Status, at_inputs, write_status
from floodway.job.store.store import LocalStore
from tests.agent.federation_world import FILE, agent
from tests.command import floodway
from tests.patience import PATIENCE_SECONDS


def invoke(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


def status_of(name: str = "clicks", **more: Any) -> Status:
    """A network that drops three quarters of its stream, and half on a branch."""
    places = {"s1": Place(0.25, 1000.0, rates=Rates(1000.0, 250.0), offered=8, kept=2), "a->b": Place(0.5, offered=2)}
    rates, keep, totals = at_inputs(places, ["s1"])
    usual: dict[str, Any] = {
        "mode": "enforce",
        "time": time.time(),
        "latency": Latency(1.9, 1.8, 2.2, 2.4, 2.0),
        "rates": rates,
        "keep": keep,
        "totals": totals,
        "reason": "a batch of 1.3 s holds 250 tuples; 1,000 wait: keeping 25%",
        "places": places,
        "nodes": {"A": NodePart(0.93, 1.0)},
    }
    return Status(name=name, kind="run", **{**usual, **more})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_status(LocalStore(tmp_path / "clicks"), status_of())
    return tmp_path / "clicks"


def test_set_leaves_the_wish_for_the_job(job: Path) -> None:
    answer = floodway("set", "clicks", "--mode", "off", "--state", str(job.parent))
    assert answer.returncode == 0
    assert ShedFiles(job).read_mode() == "off"


def test_a_network_of_processes_is_switched_and_shown_as_a_whole_or_by_node(tmp_path: Path) -> None:
    root = tmp_path / "net"
    nodes = {name: root / "nodes" / name for name in ("A", "B", "coordinator")}
    write_status(LocalStore(nodes["A"]), status_of("net: A", network="net", node="A"))
    waiting = ProcessPart(1, "waiting", waiting_for=("a1->b1",))
    write_status(
        LocalStore(nodes["B"]), Status("net: B", "node", "enforce", time.time(), network="net", process=waiting)
    )
    nodes["coordinator"].mkdir()

    def said(command: Callable[..., None], *arguments: str) -> str:
        answer = invoke(command, *arguments)
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    said(set_, str(root), "--mode", "off")
    assert said(set_, str(nodes["A"]), "--mode", "observe") == "A: observe from the next micro-batch on\n"
    assert [ShedFiles(folder).read_mode() for folder in nodes.values()] == ["observe", "off", "off"]
    shown = said(top, str(root), "--once")
    assert "net: A  ·  enforce" in shown and "net: B  ·  waiting" in shown and "a1->b1" in shown
    whole = json.loads(said(top, str(root), "--json"))
    assert (whole["name"], whole["kind"], list(whole["nodes"])) == ("net", "run", ["A", "B"])
    assert json.loads(said(top, "A", "--state", str(root), "--json"))["name"] == "net: A"
    assert said(set_, "B", "--state", str(root), "--mode", "off") == "B: off from the next micro-batch on\n"


def test_a_job_is_found_by_its_name_or_its_place(job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOODWAY_STATE", str(tmp_path))
    monkeypatch.chdir(job)
    for named in ("clicks", str(job), ".", job.as_uri()):
        assert json.loads(invoke(top, named, "--json").stdout)["name"] == "clicks", named
    elsewhere = tmp_path / "runs" / "shop"
    write_status(LocalStore(elsewhere), status_of("shop"))
    assert "no job 'shop'" in str(invoke(top, "shop", "--json").exception)
    note_place("shop", str(elsewhere))
    assert json.loads(invoke(top, "shop", "--json").stdout)["name"] == "shop"
    assert "Known there: clicks, shop" in str(invoke(top, "shops", "--json").exception)


def test_an_old_status_is_refused_with_what_to_do(job: Path) -> None:
    (job / "status.json").write_text(json.dumps({"name": "clicks", "time_us": 5, "mode": "off", "version": 1}))
    refused = invoke(top, str(job), "--json").exception
    assert "no status of this version of Floodway" in str(refused)
    assert "start the job again" in str(refused)


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


def test_a_participant_is_shown_and_switched(tmp_path: Path) -> None:
    """With the status that a real one tells: it has a journal, a load and contracts, and sheds one of two fragments."""
    a, b = free_ports(2)
    member = agent(parse_federation(FILE.format(a=a, b=b)), "A", tmp_path, lambda step: None)
    for name, keep in (("f0", 0.4), ("f1", 1.0)):
        member._add(name, FragmentLease(name, 1, "A", 0.0, time.time() + PATIENCE_SECONDS))
        member._figures.keeps = {**member._figures.keeps, name: keep}
    try:
        write_status(LocalStore(tmp_path / "A"), member.status())
    finally:
        member.journal.close()
    shown = invoke(top, str(tmp_path / "A"), "--once")
    assert shown.exit_code == 0, shown.exception
    for part in ("A  ·  participant", "of 1 CPU", "keep 40.0%", "0 done, 0 failed, 0 under way"):
        assert part in shown.output
    assert invoke(set_, str(tmp_path / "A"), "--mode", "off").exit_code == 0
    assert ShedFiles(tmp_path / "A").read_mode() == "off"


def test_top_tells_in_observe_what_enforcing_would_drop(job: Path) -> None:
    write_status(LocalStore(job), status_of(mode="observe", rates=Rates(1000.0, 1000.0)))
    assert "would drop" in invoke(top, str(job), "--once").output
    write_status(LocalStore(job), status_of(mode="off", rates=Rates(1000.0, 1000.0), keep=1.0))
    assert "would drop" not in invoke(top, str(job), "--once").output


def test_top_shows_what_the_status_says(job: Path) -> None:
    shown = floodway("top", str(job), "--once").stdout
    for part in ("enforce", "1.90 s", "1,000 tuples/s", "25.0%", "a->b", "75.0%"):
        assert part in shown
    body = json.loads(floodway("top", str(job), "--once", "--json").stdout)
    assert body["latency"] == {"mean": 1.9, "p50": 1.8, "p95": 2.2, "p99": 2.4, "target": 2.0}
    assert body["rates"] == {"offered": 1000.0, "kept": 250.0}
    assert (body["name"], body["kind"], body["mode"], body["keep"]) == ("clicks", "run", "enforce", 0.25)
    assert body["totals"] == {"offered": 8, "kept": 2, "dropped": {}, "recovered": 0}
    assert {"time", "decision_seen", "reason", "errors", "loss", "would_drop"} <= body.keys()


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
