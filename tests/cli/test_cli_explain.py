"""`floodway explain`: text, pictures and the drops of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.agent.loop.plan_book import PLANS
from floodway.cli.explain import explain
from floodway.errors import InputError, NetworkError
from floodway.job.store.line_log import KeptLines
from floodway.job.store.store import LocalStore

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"
FIGURE1 = str(EXAMPLES / "figure1.yaml")


def run(*args: str, stdin: str | None = None) -> str:
    app = typer.Typer()
    app.command()(explain)
    result = CliRunner().invoke(app, list(args), input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_network_as_text() -> None:
    text = run(FIGURE1)
    assert "figure1: 2 streams, 2 nodes, 4 operators, 2 outputs" in text
    assert "s1  max 2 /s  alone feasible up to 0.333 /s" in text
    assert "b1  map  from a1  cost 3 s  selectivity 1" in text
    assert "load" not in text


def test_rates_add_loads_and_a_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "figure1.svg"
    text = run(FIGURE1, "--rates", "s1=1,s2=1", "--keep", "s1=0.2,s2=0.4", "--picture", str(picture))
    assert "node A: cpu 1, load 1 (100%)" in text
    assert "score 0.6 under the fair scheduler" in text
    assert "<!-- keep 20% -->" in picture.read_text(encoding="utf-8")


def test_the_state_under_a_plan_is_shown_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "figure1.svg"
    text = run(FIGURE1, "--rates", "s1=1,s2=1", "--plan", "exact", "--picture", str(picture))
    assert "s1  keep 20.0%" in text and "node A: cpu 1, load 1 (100%)" in text
    assert "<!-- keep 40% -->" in picture.read_text(encoding="utf-8")
    assert json.loads(run(FIGURE1, "--rates", "s1=1,s2=1", "--plan", "exact", "--json"))["ties"] == []
    with pytest.raises(InputError, match="--plan needs --rates"):
        run(FIGURE1, "--plan", "exact")
    with pytest.raises(InputError, match="'8f3a01bc' is no planner; it is the name of a run's plan only with --state"):
        run(FIGURE1, "--rates", "s1=1,s2=1", "--plan", "8f3a01bc")


def test_an_overload_is_said() -> None:
    assert "load 3 (300%, overloaded)" in run(FIGURE1, "--rates", "s1=1,s2=1")


def test_the_drops_of_a_plan(tmp_path: Path) -> None:
    body = json.dumps({"overloaded": True, "drops": [{"at": "s1", "keep": 0.2}, {"at": "s2", "keep": 0.4}]})
    plan = tmp_path / "plan.json"
    plan.write_text(body, encoding="utf-8")
    for args, stdin in (([str(plan)], None), (["-"], body)):
        printed = run(FIGURE1, "--rates", "s1=1,s2=1", "--json", "--plan-json", *args, stdin=stdin)
        explained = json.loads(printed)
        assert explained["score"] == pytest.approx(0.6)
        assert explained["drop_locations"] == ["s1", "s2"]
        assert explained["network"]["name"] == "figure1"


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"drops": 3}', '{"drops": [{"at": "s1"}]}', "[" * 9999])
def test_a_plan_that_is_none(tmp_path: Path, body: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(body, encoding="utf-8")
    with pytest.raises(InputError, match="is not the JSON of a plan"):
        run(FIGURE1, "--plan-json", str(plan))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        run(FIGURE1, "--plan-json", str(tmp_path / "none.json"))
    with pytest.raises(NetworkError, match="unknown drop location"):
        run(FIGURE1, "--keep", "s9=0.5")
    with pytest.raises(InputError, match=r"neither in \.svg nor in \.png"):
        run(FIGURE1, "--picture", str(tmp_path / "x.gif"))


def test_an_option_in_place_of_a_plan_is_refused_as_such() -> None:
    with pytest.raises(InputError, match="--plan wants a name before --rates"):
        run(FIGURE1, "--plan", "--rates", "s1=1,s2=1")


def test_a_plan_of_a_run_by_the_name_that_its_ledger_has(tmp_path: Path) -> None:
    plan = {"id": "8f3a01bc", "time_us": 1_735_689_600_000_000, "mode": "enforce", "keeps": {"s1": 0.2, "s2": 0.4}}
    plan |= {"rates": {"s1": 1.0, "s2": 1.0}, "why": {"A.main": "batches of 2.1 s"}}
    KeptLines(LocalStore(tmp_path), PLANS).append([plan])
    text = run(FIGURE1, "--plan", "8f3a01bc", "--state", str(tmp_path))
    assert text.startswith("plan 8f3a01bc, issued 2025-01-01 00:00:00 UTC, mode enforce\n  A.main: batches of 2.1 s\n")
    assert "score 0.6 under the fair scheduler" in text
    body = json.loads(run(FIGURE1, "--plan", "8f3a01bc", "--state", str(tmp_path), "--json"))
    assert body["plan"]["keeps"] == {"s1": 0.2, "s2": 0.4} and body["score"] == pytest.approx(0.6)
    with pytest.raises(InputError, match="no plan '0'"):
        run(FIGURE1, "--plan", "0", "--state", str(tmp_path))
    with pytest.raises(InputError, match="--state needs --plan"):
        run(FIGURE1, "--state", str(tmp_path))
