"""The commands and the page on a job whose state lies in an object store: by its URI and by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from floodway.cli.audit import audit
from floodway.cli.report import report
from floodway.cli.set import set as set_
from floodway.cli.top import top
from floodway.dashboard.job_sources import StateSource
from floodway.job.decision import read_mode
from floodway.job.ledger.ledger import Ledger
from floodway.job.ledger.ledger_line import LedgerLine
from floodway.job.places import note_place
from floodway.job.status.status import Status, write_status
from floodway.job.store.store import Store
from floodway.spark.session.stores import open_store
from scripts.s3_server import S3Server

pytestmark = pytest.mark.cluster

URI = "s3a://state/jobs/clicks"


def invoke(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def job(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = open_store(URI)
    store.remove("mode.json")
    write_status(store, Status("clicks", "shed", "enforce", 5.0))
    Ledger(store).append([LedgerLine("q", 0, "clicks", "shedder", 10, 4, 6, mode="enforce", time_us=4_000_000)])
    return store


@pytest.mark.parametrize("named", [URI, f"{URI}/", "clicks"])
def test_a_job_in_an_object_store_is_watched_and_switched(
    job: Store, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("FLOODWAY_STATE", "s3a://state/jobs")
    seen = json.loads(invoke(top, named, "--json").stdout)
    assert (seen["name"], seen["totals"]["dropped"]) == ("clicks", {"shedder": 6})
    assert invoke(set_, named, "--mode", "off").exit_code == 0
    assert read_mode(job) == "off"
    told = json.loads(invoke(report, named, "--json").stdout)
    assert (told["totals"]["offered"], told["totals"]["kept"], told["reconciled"]) == (10, 4, True)
    audited = json.loads(invoke(audit, named, "--json").stdout)
    assert (audited["batches"], audited["dropped"], audited["differences"]) == (1, 6, [])


def test_a_job_notes_on_this_machine_where_its_state_lies(job: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODWAY_STATE", raising=False)
    assert "no job 'clicks'" in str(invoke(top, "clicks", "--json").exception)
    note_place("clicks", job.uri)
    assert json.loads(invoke(top, "clicks", "--json").stdout)["name"] == "clicks"
    assert "Known there: clicks" in str(invoke(top, "click", "--json").exception)


def test_the_page_shows_all_jobs_below_a_place(job: Store) -> None:
    write_status(open_store("s3a://state/jobs/orders"), Status("orders", "shed", "observe", 5.0))
    source = StateSource(["s3a://state/jobs"])
    assert [reading.name for reading in source.read()] == ["clicks", "orders"]
    source.switch(source.read()[1], "off")
    assert read_mode(open_store("s3a://state/jobs/orders")) == "off"
    assert read_mode(job) is None


def test_a_uri_without_a_job_is_refused_with_the_names_there(job: Store) -> None:
    assert "Known there: clicks" in str(invoke(top, "s3a://state/jobs", "--json").exception)
    assert "no job" in str(invoke(top, "s3a://state/nothing", "--json").exception)
