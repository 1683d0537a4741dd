"""`floodway measure`: refusals before Spark starts, and what it writes and prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from floodway.cli.measure import measure, measure_on, write_network
from floodway.errors import FloodwayError
from floodway.network.file import load_network, parse_network
from floodway.spark.log import create_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"
DELAYS = """
version: 1
name: delays
streams: {s: {max_rate: 500}}
nodes: {A: {cpu: 1}}
operators:
  a: {node: A, from: s, kind: delay, cost: 0.001}
  c: {node: A, from: a, kind: aggregate, window: 100ms, selectivity: measure}
outputs: {q: {from: c}}
"""


def run(*args: str) -> None:
    app = typer.Typer()
    app.command()(measure)
    CliRunner().invoke(app, [*args], catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "{tmp}/gone"], "no sample at .*gone"),
        (["--sample", "{tmp}"], "no log of stream s1 in .*Put one at"),
        (["--sample", "{tmp}/log"], "is one log, and the network has 2 streams"),
        (["--effort", "0"], "--effort 0 is not a duration above 0"),
        (["--write", "{tmp}/no/such/folder.yaml"], "no folder"),
    ],
)
def test_what_cannot_work_is_refused_before_spark_starts(tmp_path: Path, options: list[str], message: str) -> None:
    create_log(tmp_path / "log", "id bigint")
    with pytest.raises(FloodwayError, match=message):
        run(str(EXAMPLES / "figure1.yaml"), *(option.format(tmp=tmp_path) for option in options))


def test_a_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FloodwayError, match="cannot be read"):
        run(str(tmp_path / "none.yaml"))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["out.yaml", pytest.param("out.json", marks=pytest.mark.slow)])
def test_the_written_network_is_complete_and_loads(spark: SparkSession, tmp_path: Path, name: str) -> None:
    network = parse_network(DELAYS)
    found = measure_on(spark, network, sample=None, tuples=500, effort=0.1, seed=7, quiet=True)
    write_network(found.applied(network), tmp_path / name)
    written = load_network(tmp_path / name)
    assert written.name == "delays" and written.operators["a"] == network.operators["a"]
    counts = written.operators["c"]
    assert counts.cost is not None and counts.selectivity == pytest.approx(10 / 500, rel=0.05)


FULL = """
import resource, signal, sys
from pathlib import Path
from floodway.cli.measure import write_network
from floodway.errors import FloodwayError
from floodway.network.file import load_network
network = load_network(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    write_network(network, Path(sys.argv[1]))
except FloodwayError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_network_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(DELAYS, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert file.read_text(encoding="utf-8") == DELAYS and list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_prints_one_json_object(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(DELAYS, encoding="utf-8")
    command = [sys.executable, "-m", "floodway.cli.main", "measure", str(tmp_path / "net.yaml"), "--json"]
    done = subprocess.run([*command, "--tuples", "1000", "--effort", "0.3"], capture_output=True, check=True)
    body = json.loads(done.stdout)
    assert body["network"] == "delays" and body["samples"] == {"s": None} and body["written"] is None
    assert body["operators"]["a"]["cost_ratio"] == pytest.approx(1.0, abs=0.15)
    assert body["operators"]["c"]["declared_cost"] is None and body["operators"]["c"]["cost"] >= 0
