"""`floodway plan`: its JSON fields, every planner, saved plans, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.plan import plan
from floodway.errors import FloodwayError, InputError, NetworkError, PlanningError

NETWORKS = Path(__file__).parents[2] / "examples" / "networks"
FIGURE1 = str(NETWORKS / "figure1.yaml")
RATES = ("--rates", "s1=1,s2=1")


def run(*args: str) -> str:
    app = typer.Typer()
    app.command()(plan)
    result = CliRunner().invoke(app, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*args: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(run(*args, "--json"))
    return body


def test_exact_plan_of_figure_1() -> None:
    body = as_json(FIGURE1, *RATES)
    assert body["overloaded"] is True
    assert body["score"] == pytest.approx(0.6) and body["optimum"] == pytest.approx(0.6)
    assert {drop["at"]: drop["keep"] for drop in body["drops"]} == pytest.approx({"s1": 0.2, "s2": 0.4})
    assert body["load"] == pytest.approx({"A": 1.0, "B": 1.0})
    assert body["throughput"] == pytest.approx({"q1": 0.2, "q2": 0.4})
    assert body["regions"] >= 1 and body["build_seconds"] >= 0 and body["lookup_microseconds"] > 0


@pytest.mark.parametrize("planner", ["solver", "solver-w", "fit", "dfit"])
def test_other_planners_are_within_their_error(planner: str) -> None:
    body = as_json(FIGURE1, *RATES, "--planner", planner, "--epsilon", "0.05")
    assert body["score"] >= 0.95 * body["optimum"] - 1e-9
    assert body["epsilon"] == 0.05
    assert ("rows" if "fit" in planner else "regions") in body


WINDOWS = """
version: 1
name: windows
streams: {{s: {{max_rate: 10, schema: "{schema}"}}}}
nodes: {{A: {{cpu: 1}}}}
operators: {{count: {{node: A, from: s, kind: aggregate, window: 10s, slide: 5s, cost: 0.5}}}}
outputs: {{q: {{from: count}}}}
"""


def test_a_drop_above_an_aggregate_is_a_window_drop_and_its_price_is_told(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(WINDOWS.format(schema="id bigint, event_time timestamp"))
    body = as_json(str(path), "--rates", "s=4")
    (drop,) = body["drops"]
    assert (drop["kind"], drop["size"], drop["slide"]) == ("window", 10.0, 5.0)
    # Half of the tuples make room for 1 - sqrt(1/2) of the windows, which overlap by half.
    assert drop["keep"] == pytest.approx(0.5) and drop["windows"] == pytest.approx(0.292893, abs=1e-5)
    assert body["load"]["A"] == pytest.approx(1.0)
    assert body["throughput"]["q"] == body["score"] == pytest.approx(4 * 0.292893, abs=1e-4)
    assert "s drops whole windows of 10 s by 5 s: 29.29% of them are kept" in run(str(path), "--rates", "s=4")


def test_without_an_event_time_the_drop_is_random_and_the_plan_says_so(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(WINDOWS.format(schema="id bigint"))
    (drop,) = as_json(str(path), "--rates", "s=4")["drops"]
    assert drop["kind"] == "random" and "has no column 'event_time'" in drop["reason"]
    assert "windows below are not exact" in run(str(path), "--rates", "s=4")


def test_not_overloaded_drops_nothing() -> None:
    body = as_json(FIGURE1, "--rates", "s1=0.1,s2=0.1", "--planner", "solver")
    assert body["overloaded"] is False and body["drops"] == []
    assert "not overloaded" in run(FIGURE1, "--rates", "s1=0.1,s2=0.1")


def test_headroom_scale_and_objective() -> None:
    assert as_json(FIGURE1, *RATES, "--headroom", "0.5")["score"] == pytest.approx(0.3)
    assert as_json(FIGURE1, *RATES, "--scale", "2")["score"] == pytest.approx(1.2)
    assert as_json(FIGURE1, *RATES, "--objective", "fair")["throughput"] == pytest.approx({"q1": 0.25, "q2": 0.25})


def test_text_names_drops_loads_and_score() -> None:
    text = run(FIGURE1, *RATES)
    assert "s1       20.00%  80.00%" in text
    assert "score 0.6, optimum 0.6" in text
    assert "below" in run(FIGURE1, *RATES, "--planner", "solver")


def test_saved_plans_are_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "plans")
    saved = as_json(FIGURE1, *RATES, "--planner", "solver", "--save", path)
    loaded = as_json(FIGURE1, *RATES, "--planner", "solver", "--load", path)
    assert loaded["drops"] == saved["drops"] and loaded["regions"] == saved["regions"]
    for wrong in ((FIGURE1, *RATES), (str(NETWORKS / "figure1-short.yaml"), *RATES, "--planner", "solver")):
        with pytest.raises(InputError):
            run(*wrong, "--load", path)


def test_tables_are_fine_only_where_rates_were_seen(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("s2, s1\n" + "\n".join(f"{0.9 + i / 1000}, {1.0 + i / 500}" for i in range(50)))
    given = (FIGURE1, *RATES, "--planner", "fit", "--workload", str(path))
    whole, adapted = as_json(*given[:-2]), as_json(*given)
    assert adapted["rows"] < whole["rows"] and adapted["score"] >= 0.95 * 0.6
    assert as_json(FIGURE1, *RATES, "--planner", "solver-w", "--workload", str(path))["score"] > 0.5
    for wrong, says in (
        ("", "cannot be read"),
        ("s1\n1\n", "no column 's2'"),
        ("s1,s2\n", "at least one row"),
        ("s1,s2\n1\n", "no rate"),
        ("s1,s2\n1,x\n", "no rate: could not convert"),
        ("s1,s2\n1,-1\n", "negative"),
    ):
        path.write_text(wrong)
        with pytest.raises(InputError, match=says):
            run(*given)
    with pytest.raises(InputError, match=r"does not ask how likely rates are\. Use --planner fit or solver-w"):
        run(FIGURE1, *RATES, "--workload", str(path))
    run(FIGURE1, *RATES, "--planner", "fit", "--save", str(tmp_path / "plans"))
    with pytest.raises(InputError, match="about plans that were saved"):
        run(*given, "--load", str(tmp_path / "plans"))


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        (("--rates", "s1=1"), NetworkError, "no rate for s2"),
        (("--rates", "s1=1,s2=1,s3=1"), NetworkError, "s3"),
        (("--rates", "s1=-1,s2=1"), InputError, "s1=-1"),
        ((*RATES, "--planner", "simplex"), InputError, "no planner"),
        ((*RATES, "--objective", "fairest"), InputError, "fair"),
        ((*RATES, "--planner", "fit", "--objective", "fair"), PlanningError, "exact planner"),
        ((*RATES, "--epsilon", "0", "--planner", "solver"), InputError, "epsilon"),
        ((*RATES, "--headroom", "2"), InputError, "headroom"),
        ((*RATES, "--scale", "0"), InputError, "scale"),
    ],
)
def test_mistakes_are_named(args: tuple[str, ...], error: type[FloodwayError], says: str) -> None:
    with pytest.raises(error, match=says):
        run(FIGURE1, *args)


def test_a_tie_is_divided_evenly_and_told(tmp_path: Path) -> None:
    network = tmp_path / "tie.yaml"
    network.write_text(
        "version: 1\nstreams: {s1: {}, s2: {}}\nnodes: {A: {cpu: 1}}\n"
        "operators: {a: {node: A, from: s1, cost: 1}, b: {node: A, from: s2, cost: 1}}\n"
        "outputs: {q: {from: a}, p: {from: b}}\n"
    )
    body = as_json(str(network), "--rates", "s1=1,s2=3")
    assert body["ties"] == [["s1", "s2"]]
    assert {drop["at"]: drop["keep"] for drop in body["drops"]} == pytest.approx({"s1": 0.25, "s2": 0.25})
    text = run(str(network), "--rates", "s1=1,s2=3")
    assert "arbitrary: s1 and s2 earn the same for what they take; divided evenly" in text
