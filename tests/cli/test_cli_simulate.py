"""`floodway simulate`: Table 1 from the command line, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.simulate import simulate
from floodway.errors import InputError, NetworkError

FIGURE1 = str(Path(__file__).parents[2] / "examples" / "networks" / "figure1.yaml")


def run(*args: str) -> str:
    app = typer.Typer()
    app.command()(simulate)
    result = CliRunner().invoke(app, [FIGURE1, *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_has_loads_and_throughput() -> None:
    body = json.loads(run("--rates", "s1=1,s2=1", "--json"))
    assert body["load"] == pytest.approx({"A": 3.0, "B": 4 / 3})
    assert body["throughput"] == pytest.approx({"q1": 0.25, "q2": 0.25})
    assert body["node_throughput"]["A"] == pytest.approx({"a1": 1 / 3, "a2": 1 / 3})
    assert body["score"] == pytest.approx(0.5)


def test_keeps_at_streams_and_arcs() -> None:
    body = json.loads(run("--rates", "s1=1,s2=1", "--keep", "s1=0.2,s2=0.8,a2->b2=0.5", "--json"))
    # A is overloaded: of the 0.8 tuples/s of s2 it serves 0.4, and half of these are dropped on the way to B.
    assert body["load"] == pytest.approx({"A": 1.8, "B": 3 * 0.2 + 0.2})


def test_the_table_for_people() -> None:
    text = run("--rates", "s1=1,s2=1", "--keep", "s1=0.2,s2=0.4")
    assert "A     1     100%         a1 0.2/s, a2 0.4/s" in text
    assert "score 0.6" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--rates", "s1=1"], "no rate for s2"),
        (["--rates", "s1=1,s2=1,S3=1"], "unknown stream 'S3'; did you mean s1 or s2?"),
        (["--rates", "s1=1,s2=1", "--keep", "a1->b9=0.5"], r"did you mean a1->b1\?"),
        (["--rates", "s1=1,s2=1", "--keep", "s1=1.5"], "from 0 to 1, not 1.5"),
    ],
)
def test_refusals_of_names_and_ranges(args: list[str], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        run(*args)


def test_rates_that_are_no_numbers() -> None:
    with pytest.raises(InputError, match="is not name=rate"):
        run("--rates", "s1=fast,s2=1")


def test_spaces_where_commas_belong_are_told() -> None:
    with pytest.raises(InputError, match=r"Put commas between them: --rates s1=1,s2=1"):
        run("--rates", "s1=1 s2=1")
