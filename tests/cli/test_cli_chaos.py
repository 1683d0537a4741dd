from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.chaos import chaos
from floodway.errors import InputError
from floodway.experiments.chaos import registry
from floodway.experiments.chaos.result import FaultResult, Trial

app = typer.Typer()
app.command()(chaos)
runner = CliRunner()


def test_list_names_every_fault_without_running_any() -> None:
    result = runner.invoke(app, ["--list"])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(registry.FAULTS)


def test_json_has_the_stable_fields_and_what_repeats_the_run(tmp_path: Path) -> None:
    result = runner.invoke(app, ["--only", "clocks", "--points", "4", "--seed", "11", "--json"])
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    assert (body["points"], body["seed"]) == (4, 11)
    (found,) = body["results"]
    assert {"id", "tried", "lost", "doubled", "differences"} <= set(found)
    assert "clocks" in result.stderr


def test_a_table_ends_with_points_and_seed() -> None:
    result = runner.invoke(app, ["--only", "clocks", "--points", "3", "--seed", "5"])
    assert result.exit_code == 0
    assert "clocks" in result.stdout and "3 points, seed 5" in result.stdout


def test_a_fault_that_has_ended_is_printed_before_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(trial: Trial) -> FaultResult:
        if trial.folder.name == "clocks":
            return FaultResult("clocks", 3, doubled=1, differences=["twice"])
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "load", lambda fault: interrupted)
    result = runner.invoke(app, ["--only", "clocks", "--only", "disks", "--points", "3"])
    assert "clocks: 3 tried, 0 lost, 1 doubled, 1 differences" in result.stderr


def test_a_violation_is_printed_and_costs_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def violated(trial: Trial) -> FaultResult:
        return FaultResult("clocks", trial.points, lost=1, differences=["one tuple is gone"])

    monkeypatch.setattr(registry, "load", lambda fault: violated)
    result = runner.invoke(app, ["--only", "clocks", "--points", "2"])
    assert result.exit_code == 1
    assert "clocks: one tuple is gone" in result.stdout


def test_what_cannot_run_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(trial: Trial) -> FaultResult:
        raise InputError("there is no Java", hint="Install one")

    monkeypatch.setattr(registry, "load", lambda fault: refused)
    result = runner.invoke(app, ["--only", "clocks", "--json"])
    assert result.exit_code == 1
    assert "could not run: there is no Java" in json.loads(result.stdout)["results"][0]["differences"][0]


@pytest.mark.parametrize("arguments", [["--only", "clock"], ["--points", "0"]])
def test_mistakes_are_refused(arguments: list[str]) -> None:
    assert isinstance(runner.invoke(app, arguments).exception, InputError)
