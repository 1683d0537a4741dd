"""`floodway node`, `floodway up` and `floodway audit` from the outside, as far as no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from floodway.agent.node.node_options import NodeOptions, parse_listen, spark_master, spark_settings
from floodway.errors import InputError
from floodway.job.ledger.ledger import Ledger, LedgerLine, Reason
from floodway.network.file import load_network
from floodway.network.model import Arc, Node
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.layout import NodeLayout
from tests.command import floodway

FIGURE1 = Path(__file__).parents[2] / "examples" / "networks" / "figure1.yaml"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either --node NAME or --coordinator"),
        (("--node", "A", "--coordinator"), "give either --node NAME or --coordinator"),
        (("--node", "Z"), "no operator runs on node 'Z'"),
        (("--node", "A", "--control", "dift"), "--control 'dift' is unknown"),
        (("--node", "A", "--urls", "B"), "--urls: 'B' is not name=address"),
        (("--node", "A", "--conf", "spark.ui.enabled"), "--conf: 'spark.ui.enabled' is not key=value"),
        (("--node", "A", "--listen", "0.0.0.0:0"), "nothing authenticates who asks"),
        (("--node", "A", "--links", "localhost:9092"), "--links 'localhost:9092' is not an address for links"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = floodway("node", str(FIGURE1), "--state", str(tmp_path), *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_up_refuses_before_it_starts_anything(tmp_path: Path) -> None:
    direct = tmp_path / "net.yaml"
    text = FIGURE1.read_text(encoding="utf-8").replace("q2: {from: b2}", "q2: {from: b2}\n  q3: {from: s1}")
    direct.write_text(text, encoding="utf-8")
    done = floodway("up", str(direct), "--state", str(tmp_path / "state"), "--json")
    assert done.returncode != 0
    assert "reads a stream directly" in json.loads(done.stdout)["error"]
    assert not (tmp_path / "state" / "nodes").exists()


def test_audit_goes_over_the_nodes_and_their_links(tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path)
    network = load_network(FIGURE1)
    assert list(network.nodes) == ["A", "B"]
    log = create_log(layout.shared.link(Arc("a1", "b1")), "value bigint")
    with LogWriter(log.path) as writer:
        writer.append(pa.table({"value": pa.array([1, 2, 3], pa.int64())}), tag="A.main:a1->b1:0:0")
    Ledger(layout.own("A").store).append([LedgerLine("A.main", 0, "a1->b1", Reason.DELIVERED, 3, 3, 0)])
    Ledger(layout.own("B").store).append([LedgerLine("B.main", 0, "a1->b1", Reason.SHEDDER, 2, 1, 1)])
    done = floodway("audit", str(FIGURE1), "--state", str(tmp_path), "--json")
    body = json.loads(done.stdout)
    assert done.returncode == 0 and body["reconciled"]
    expected = {"delivered": 3, "unfinished": 0, "in_log": 3, "offered": 2, "waiting": 1, "repeated": 0}
    assert body["links"] == {"a1->b1": expected}
    Ledger(layout.own("B").store).append([LedgerLine("B.main", 1, "a1->b1", Reason.SHEDDER, 9, 9, 0)])
    done = floodway("audit", str(FIGURE1), "--state", str(tmp_path))
    assert done.returncode == 1
    assert "B's ledger was offered 11, the log holds 3" in done.stdout


def test_a_local_node_is_small_and_a_cluster_is_left_as_it_is() -> None:
    node = Node("A", cpu=2.0, spark={"spark.x": "file", "spark.y": "file"})
    options = NodeOptions(node="A", root=Path("state"), settings={"spark.y": "caller"})
    assert spark_master(node, options) == "local[2]"
    settings = spark_settings(node, options)
    assert settings["spark.driver.memory"] == "512m"
    assert (settings["spark.x"], settings["spark.y"]) == ("file", "caller")
    remote = NodeOptions(node="A", root=Path("state"), master="spark://host:7077")
    assert spark_master(node, remote) == "spark://host:7077"
    assert "spark.driver.memory" not in spark_settings(node, remote)


@pytest.mark.parametrize(
    ("text", "found"),
    [("127.0.0.1:8700", ("127.0.0.1", 8700)), ("[::1]:0", ("::1", 0)), (":8700", ("127.0.0.1", 8700))],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert parse_listen(text) == found
    with pytest.raises(InputError, match="no usable port"):
        parse_listen("127.0.0.1:70000")
