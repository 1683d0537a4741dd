from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.reproduce import reproduce
from floodway.cli.view.campaign import summary
from floodway.errors import InputError
from floodway.experiments import registry
from floodway.experiments.registry import ARRIVALS, EXPERIMENTS, READINGS
from floodway.experiments.result import PAPERS, Claim

app = typer.Typer()
app.command()(reproduce)
runner = CliRunner()


def test_list_names_every_experiment_with_its_title() -> None:
    result = runner.invoke(app, ["--list"])
    assert result.exit_code == 0
    assert "buffer-fig3" in result.stdout
    assert "FIFO and EDF" in result.stdout
    listed = json.loads(runner.invoke(app, ["--list", "--json"]).stdout)["experiments"]
    assert {"id", "title", "paper", "long"} == set(listed[0])
    lines = result.stdout.splitlines()
    assert len(lines) == len(listed)
    for line, one in zip(lines, listed, strict=True):
        assert one["paper"] in line  # every line names its paper
        assert ("--long" in line) == one["long"]
    assert {one["paper"].split(",")[0] for one in listed} == set(PAPERS.values())


def test_json_is_one_object_with_the_stable_fields(tmp_path: Path) -> None:
    result = runner.invoke(app, ["staying-fit-table1", "--json", "--seeds", "1", "--plots", str(tmp_path)])
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    (found,) = body["results"]
    assert {"id", "paper", "measured", "holds", "reason", "criteria", "seconds", "where"} <= set(found)
    assert found["id"] == "staying-fit-table1"
    assert found["holds"] is True
    assert found["seconds"] > 0
    assert (tmp_path / "staying-fit-table1.png").is_file()


def test_html_holds_the_table_and_every_plot(tmp_path: Path) -> None:
    out = tmp_path / "papers.html"
    result = runner.invoke(app, ["staying-fit-table1", "dissp-laws", "--seeds", "1", "--html", str(out)])
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert "2 of 2 hold" in text
    assert text.count("<article") == 2
    assert text.count("data:image/png;base64,") >= 1
    assert "<td>simulation</td>" in text and "<td>computation</td>" in text
    assert 'src="http' not in text


def test_one_that_cannot_run_costs_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**given: object) -> None:
        raise RuntimeError("no Java here\nand a long trace")

    monkeypatch.setattr("floodway.experiments.dissp.laws.run", broken)
    out = tmp_path / "papers.html"
    command = ["dissp-laws", "staying-fit-table1", "--seeds", "1"]
    result = runner.invoke(app, [*command, "--html", str(out), "--plots", str(tmp_path)])
    assert result.exit_code == 1
    assert "1 of 2 hold; could not run: dissp-laws" in result.stdout
    text = out.read_text(encoding="utf-8")
    assert "could not run: no Java here" in text and "1 of 2 hold" in text
    body = json.loads(runner.invoke(app, [*command, "--json"]).stdout)
    assert [one["failed"] for one in body["results"]] == ["no Java here", None]


def test_what_was_left_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = {name: registry.EXPERIMENTS[name] for name in ("staying-fit-table1", "dfit-agents")}
    monkeypatch.setattr(registry, "EXPERIMENTS", short)
    result = runner.invoke(app, [])
    assert "left out, minutes long: dfit-agents; `floodway reproduce --long` runs them too" in result.stdout
    assert "--html FILE" in result.stdout
    out = tmp_path / "papers.html"
    body = json.loads(runner.invoke(app, ["--json", "--html", str(out)]).stdout)
    assert body["left_out"] == ["dfit-agents"]
    assert "dfit-agents (run with --long)" in out.read_text(encoding="utf-8")
    assert "left out" not in runner.invoke(app, ["staying-fit-table1"]).stdout


def test_a_claim_that_does_not_hold_exits_with_one_and_says_so(tmp_path: Path) -> None:
    # Traffic more even than Poisson: a buffer gains less on it, so the claim about bursts must fail.
    rng = random.Random(1)
    path = tmp_path / "even.csv"
    path.write_text("\n".join(str(rng.randint(11, 13)) for _ in range(6000)))
    result = runner.invoke(app, ["buffer-fig8", "--seeds", "1", "--trace", str(path)])
    assert result.exit_code == 1
    assert "0 of 1 hold; not: buffer-fig8" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["buffer-fig33"], "Did you mean buffer-fig3"),
        (["buffer-fig3", "--seeds", "0"], "--seeds 0"),
        (["buffer-fig3", "--trace", "no-such.csv"], "not a file"),
    ],
)
def test_bad_arguments_are_input_errors_with_exit_code_two(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2
    assert message in str(result.exception)


def test_a_trace_goes_to_the_results_that_take_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Path | None] = {}

    def loaded(name: str) -> Any:
        def run(*, seeds: Any, trace: Path | None, progress: Any) -> Any:
            given[name] = trace
            raise RuntimeError("only the trace is of interest")

        return SimpleNamespace(TITLE=name, CLAIM=Claim("contracts", "here", "a claim"), run=run)

    monkeypatch.setattr("floodway.experiments.registry.load", loaded)
    path = tmp_path / "trace.csv"
    path.write_text("arrivals per 100 ms bin\n3\n4\n")
    result = runner.invoke(app, ["--long", "--trace", str(path)])
    assert "staying-fit-adaptive; the others take no such trace" in result.stderr
    assert {name for name, trace in given.items() if trace == path} == set(ARRIVALS.results)
    assert set(given) == set(EXPERIMENTS)
    path.write_text(",".join(f"host{i}" for i in range(12)) + "\n" + ",".join("7" * 12))
    runner.invoke(app, ["--long", "--trace", str(path)])
    assert {name for name, trace in given.items() if trace == path} == set(READINGS.results)
    path.write_text("ts,source,destination,protocol,service\n5.5,a,b,udp,53\n")
    runner.invoke(app, ["buffer-fig8", "federation-fig13", "--trace", str(path)])
    assert (given["buffer-fig8"], given["federation-fig13"]) == (None, path)


@pytest.mark.parametrize(
    ("text", "ids", "message"),
    [
        ("3\n4\n", ["dissp-spark-fig6"], "holds counts of arrivals, .*dissp-spark-fig6 takes readings of hosts"),
        ("3\n4\n", ["contracts-fig8"], "these take no trace. buffer-fig8, .* can run on it"),
        ("3\n4.5\n", ["buffer-fig8"], "line 2: '4.5' is not a count"),
        ("name,age\nx,3\n", ["buffer-fig8"], "is no trace that a result can run on. Give counts"),
    ],
)
def test_a_trace_that_fits_nothing_is_refused_before_anything_runs(
    text: str, ids: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    result = runner.invoke(app, [*ids, "--trace", str(path)])
    assert isinstance(result.exception, InputError) and re.search(message, str(result.exception))


def test_summary_shows_a_few_lines_and_says_how_many_more() -> None:
    text = summary({f"v{place}": {"a": 1.0, "by_seed": [1]} for place in range(9)}, most_lines=6)
    assert text.splitlines()[0] == "v0: a 1"
    assert text.splitlines()[-1] == "... 3 more in --json"
