"""Pictures: nothing overlaps, arrows keep off the boxes, and files come out as asked."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from floodway.errors import InputError
from floodway.network.fair import fair
from floodway.network.file import load_network
from floodway.network.layering import Spacing, spread
from floodway.network.model import Network
from floodway.network.picture import save_picture
from floodway.network.picture_layout import PictureLayout, Rectangle, lay_out
from floodway.network.text import network_text
from tests.effort import tries
from tests.strategies import networks

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"


def overlap(one: Rectangle, other: Rectangle) -> bool:
    across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return across > 1e-6 and down > 1e-6


def inside(one: Rectangle, other: Rectangle) -> bool:
    return (
        one.x >= other.x
        and one.y >= other.y
        and one.x + one.width <= other.x + other.width + 1e-6
        and one.y + one.height <= other.y + other.height + 1e-6
    )


def check_layout(network: Network, layout: PictureLayout) -> None:
    for (first, one), (second, other) in combinations(layout.boxes.items(), 2):
        assert not overlap(one, other), f"{first} and {second} overlap"
    for (first, one), (second, other) in combinations(layout.groups.items(), 2):
        assert not overlap(one, other), f"nodes {first} and {second} overlap"
    for name, box in layout.boxes.items():
        for node, group in layout.groups.items():
            if network.node_of(name) == node:
                assert inside(box, group)
            else:
                assert not overlap(box, group), f"{name} lies on node {node}"
    for arc, points in layout.routes.items():
        # Straight stretches of an arrow, where it passes a column, run beside every box.
        for (x0, y0), (x1, _) in list(pairwise(points))[1:-1:2]:
            lane = Rectangle(x0, y0 - 1, x1 - x0, 2)
            assert not any(overlap(lane, box) for box in layout.boxes.values()), f"{arc} crosses a box"


@settings(max_examples=tries(30), deadline=None, derandomize=True)
@given(networks(4, 10, 4, stream_outputs=True, node_cycles=True))
def test_nothing_overlaps_in_any_network(network: Network) -> None:
    def size(name: str) -> tuple[float, float]:
        arrows = max(len(network.consumers.get(name, ())), 3)
        return 40.0 + 5 * len(name), 12.0 * arrows

    layout = lay_out(network, size, Spacing(label=30.0, mark=50.0, marked=frozenset(list(network.streams)[:1])))
    check_layout(network, layout)
    assert set(layout.routes) == set(network.arcs)


def test_arrows_of_a_chain_run_level() -> None:
    network = load_network(EXAMPLES / "figure1.yaml")
    layout = lay_out(network, lambda _: (60.0, 30.0), Spacing())
    for points in layout.routes.values():
        assert points[0][1] == pytest.approx(points[-1][1], abs=0.5)


def test_spread_keeps_order_distance_and_bounds() -> None:
    assert spread([0.0, 100.0], [10.0, 10.0], 2.0) == [0.0, 100.0]
    assert spread([50.0, 0.0], [10.0, 10.0], 2.0) == [19.0, 31.0]
    assert spread([-50.0, 200.0], [10.0, 10.0], 2.0, low=0.0, high=60.0) == [5.0, 55.0]
    assert spread([], [], 2.0) == []


@pytest.mark.parametrize("name", ["figure1", "two-level-split", "diamond", "bandwidth-memory"])
def test_pictures_hold_the_numbers(tmp_path: Path, name: str) -> None:
    network = load_network(EXAMPLES / f"{name}.yaml")
    rates = dict.fromkeys(network.streams, 1.0)
    keeps = {network.drop_locations[0]: 0.5, network.drop_locations[-1]: 0.25}
    result = fair(network, rates, keeps)
    svg, png = tmp_path / "net.svg", tmp_path / "net.PNG"
    for path in (svg, png):
        save_picture(network, path, rates=rates, keeps=keeps, result=result)
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    ET.fromstring(text)
    # Text is drawn as outlines; matplotlib leaves the words themselves beside them as comments.
    for word in (*network.operators, *network.nodes, "keep 50%", "keep 25%"):
        assert f"<!-- {word} -->" in text
    for node, load in result.load.items():
        assert f"<!-- {load / network.nodes[node].cpu:.0%} -->" in text


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    network = load_network(EXAMPLES / "diamond.yaml")
    for name in ("one.svg", "two.svg"):
        save_picture(network, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_wrong_endings_and_folders_are_refused(tmp_path: Path) -> None:
    network = load_network(EXAMPLES / "figure1.yaml")
    with pytest.raises(InputError, match=r"neither in \.svg nor in \.png"):
        save_picture(network, tmp_path / "net.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        save_picture(network, tmp_path / "nowhere" / "net.svg")


def test_text_names_everything_with_loads() -> None:
    network = load_network(EXAMPLES / "bandwidth-memory.yaml")
    rates = {"sensors": 10.0, "events": 10.0}
    text = network_text(network, rates=rates, keeps={"sensors": 0.5}, result=fair(network, rates, {"sensors": 0.5}))
    for name in (*network.streams, *network.operators, *network.outputs, *network.drop_locations):
        assert name in text
    assert "node edge: cpu 1, load 0.25 (25%)" in text
    assert "windows 5 and 10 tuples" in text
    assert "keep 50.0%" in text
    assert "offered 920 bytes/s" in text
