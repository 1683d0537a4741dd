from __future__ import annotations

from floodway.agent.loop.stages import Stage, stages
from floodway.network.file import load_network
from floodway.spark.query.fragments import Fragment, fragments


def of(path: str) -> dict[str, Fragment]:
    network = load_network(path)
    return {f"{node}.{f.name}": f for node in network.nodes for f in fragments(network, node)}


def test_one_query_has_the_whole_target() -> None:
    assert stages(of("examples/networks/split.yaml")) == {"A.main": Stage(1, 1)}


def test_a_chain_of_two_shares_it() -> None:
    found = stages(of("examples/networks/figure1.yaml"))
    assert found == {"A.main": Stage(1, 2), "B.main": Stage(2, 2)}
    assert found["A.main"].target_seconds(3.0) == 1.5
    assert found["B.main"].target_seconds(3.0) == 3.0
    assert found["B.main"].share_seconds(3.0) == 1.5


def test_a_diamond_counts_its_longest_path() -> None:
    found = stages(of("examples/networks/diamond.yaml"))
    assert {name: (stage.position, stage.depth) for name, stage in found.items()} == {
        "A.main": (1, 3),
        "B.main": (2, 3),
        "C.main": (2, 3),
        "D.main": (3, 3),
    }
