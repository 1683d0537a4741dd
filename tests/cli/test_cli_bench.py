from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.bench import bench
from floodway.errors import InputError
from floodway.experiments.bench import registry as bench_registry
from floodway.experiments.bench.registry import Benchmark

app = typer.Typer()
app.command()(bench)
runner = CliRunner()

FIELDS = {"id", "ours", "peer", "ratio", "goal", "holds", "unit", "detail", "seconds"}


def test_list_names_every_benchmark_without_running_any() -> None:
    result = runner.invoke(app, ["--list"])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(bench_registry.BENCHMARKS)
    listed = json.loads(runner.invoke(app, ["spark", "--list", "--json"]).stdout)["benchmarks"]
    assert {entry["group"] for entry in listed} == {"spark"}
    assert {"id", "group", "title"} == set(listed[0])


def test_json_is_one_object_with_the_stable_fields() -> None:
    result = runner.invoke(app, ["planning-fit-build", "--json"])
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    (found,) = body["results"]
    assert set(found) == FIELDS
    assert found["id"] == "planning-fit-build"
    assert found["ratio"] == pytest.approx(found["peer"] / found["ours"], rel=1e-2)
    assert body["failed"] == []
    assert "planning-fit-build" in result.stderr


def test_text_shows_the_ratio_the_goal_and_a_verdict() -> None:
    result = runner.invoke(app, ["planning-fit-build"])
    assert result.exit_code == 0
    assert "ratio" in result.stdout and "goal: ours < 1 s" in result.stdout
    assert "of 1 goals reached" in result.stdout


def test_one_that_fails_costs_exit_code_one_but_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Benchmark("broken", "planning", "names no function", "planning_fit:no_such_function")
    monkeypatch.setitem(bench_registry.BENCHMARKS, "planning-broken", broken)
    result = runner.invoke(app, ["planning-broken", "planning-fit-build", "--json"])
    assert result.exit_code == 1
    body = json.loads(result.stdout)
    assert [item["id"] for item in body["results"]] == ["planning-fit-build"]
    (failed,) = body["failed"]
    assert failed["id"] == "planning-broken" and "no_such_function" in failed["error"]


@pytest.mark.parametrize(("name", "meant"), [("planing", "planning"), ("planning-fit-bild", "planning-fit-build")])
def test_an_unknown_id_is_refused_with_the_nearest_one(name: str, meant: str) -> None:
    result = runner.invoke(app, [name])
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2
    assert f"Did you mean {meant}?" in str(result.exception)
