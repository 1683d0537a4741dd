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
    result = runner.invoke(app, ["--only", "agent-clocks", "--points", "4", "--seed", "11", "--json"])
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    assert (body["points"], body["seed"]) == (4, 11)
    (found,) = body["results"]
    assert {"id", "tried", "lost", "doubled", "differences", "untried"} <= set(found)
    assert "agent-clocks" in result.stderr


def test_a_table_ends_with_points_and_seed() -> None:
    result = runner.invoke(app, ["--only", "agent-clocks", "--points", "3", "--seed", "5"])
    assert result.exit_code == 0
    assert "agent-clocks" in result.stdout and "3 points, seed 5" in result.stdout


def test_a_fault_that_has_ended_is_printed_before_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(trial: Trial) -> FaultResult:
        if trial.folder.name == "agent-clocks":
            return FaultResult("agent-clocks", 3, doubled=1, differences=["twice"])
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "load", lambda fault: interrupted)
    result = runner.invoke(app, ["--only", "agent-clocks", "--only", "disks", "--points", "3"])
    assert "agent-clocks: 3 tried, 0 lost, 1 doubled, 1 differences" in result.stderr


def test_a_violation_is_printed_and_costs_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def violated(trial: Trial) -> FaultResult:
        return FaultResult("agent-clocks", trial.points, lost=1, differences=["one tuple is gone"])

    monkeypatch.setattr(registry, "load", lambda fault: violated)
    result = runner.invoke(app, ["--only", "agent-clocks", "--points", "2"])
    assert result.exit_code == 1
    assert "agent-clocks: one tuple is gone" in result.stdout


def test_what_cannot_run_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(trial: Trial) -> FaultResult:
        raise InputError("there is no Java", hint="Install one")

    monkeypatch.setattr(registry, "load", lambda fault: refused)
    result = runner.invoke(app, ["--only", "agent-clocks", "--json"])
    assert result.exit_code == 1
    assert "could not run: there is no Java" in json.loads(result.stdout)["results"][0]["differences"][0]


def nothing_tried(trial: Trial) -> FaultResult:
    if trial.folder.name == "packets":
        return FaultResult("packets", untried="there are no namespaces")
    return FaultResult(trial.folder.name, tried=0 if trial.folder.name == "fuzz" else trial.points)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("packets", "no namespaces"),
        ("fuzz", "no point was tried"),
        ("kafka-shed-kills", "--kafka-libs and --kafka-con"),
    ],
)
def test_a_fault_that_was_asked_for_and_not_tried_is_an_error(
    monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    monkeypatch.setattr(registry, "load", lambda fault: nothing_tried)
    result = runner.invoke(app, ["--only", fault, "--points", "2", "--json"])
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["results"]
    assert found["tried"] == 0
    assert "could not be tried" in found["differences"][0] and why in found["differences"][0]


def test_among_all_faults_those_not_tried_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda fault: nothing_tried)
    untried = {"packets", "fuzz", "kafka-kills", "kafka-run-kills", "kafka-shed-kills"}
    as_json = runner.invoke(app, ["--points", "2", "--json"])
    assert as_json.exit_code == 0
    results = json.loads(as_json.stdout)["results"]
    assert {one["id"] for one in results} == set(registry.FAULTS)
    assert {one["id"] for one in results if one["untried"]} == untried
    table = runner.invoke(app, ["--points", "2"])
    assert table.exit_code == 0
    shown = [line for line in table.stdout.splitlines() if "UNTRIED" in line]
    for fault in untried:
        assert len([line for line in shown if f" {fault}" in line]) == 2, "once in the table, once below it"


def test_a_part_that_was_not_tried_is_named_beside_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    partial = FaultResult("disks", tried=3, untried="read-only: no namespaces")
    monkeypatch.setattr(registry, "load", lambda fault: lambda trial: partial)
    result = runner.invoke(app, ["--only", "disks", "--points", "3"])
    assert result.exit_code == 0
    assert "UNTRIED disks: read-only: no namespaces" in result.stdout and "3 points" in result.stdout


@pytest.mark.parametrize("arguments", [["--only", "clock"], ["--points", "0"]])
def test_mistakes_are_refused(arguments: list[str]) -> None:
    assert isinstance(runner.invoke(app, arguments).exception, InputError)
