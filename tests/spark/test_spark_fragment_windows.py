"""Where the fragments of a network drop by windows, and which keeps decide what leaves them."""

from __future__ import annotations

from pathlib import Path

from floodway.agent.loop.steering_loop import fragments_of
from floodway.job.options.options import JobOptions
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import FIRST_US, WindowKeeps
from floodway.spark.query.fragment_windows import FragmentWindows, drop_kinds, fragment_windows, timeless_streams
from floodway.units import PPM

SHAPE = WindowShape(10_000_000, 5_000_000)

TEXT = """
version: 1
name: n
streams: {s: {max_rate: 10}}
nodes: {A: {}, B: {}}
operators:
  parse: {node: A, from: s, cost: 0.1}
  count: {node: %s, from: parse, kind: aggregate, window: 10s, slide: 5s, cost: 0}
outputs: {q: {from: count}, raw: {from: parse}}
"""


def windows(network: Network, folder: Path, node: str | None = None) -> dict[str, FragmentWindows]:
    part = network if node is None else node_part(network, node)
    return fragment_windows(network, part, fragments_of(part), folder, {})


def test_in_one_process_a_branch_before_an_aggregate_drops_by_windows_too(tmp_path: Path) -> None:
    found = windows(parse_network(TEXT % "A"), tmp_path)
    main, count = found["A.main"], found["A.count"]
    assert main.drops == {"s": WindowKeeps(SHAPE, 0), "parse->count": WindowKeeps(SHAPE, 3)}
    assert main.of_source("s") == main.drops
    assert main.checked == frozenset()
    assert count.drops == {} and count.above == ("A.main",)
    assert {str(arc) for arc in count.checked} == {"count->q"}


def test_nodes_drop_by_the_windows_of_the_nodes_below_and_at_their_links(tmp_path: Path) -> None:
    network = parse_network(TEXT % "B")
    above, below = windows(network, tmp_path, "A")["A.main"], windows(network, tmp_path, "B")["B.count"]
    assert above.drops == {"s": WindowKeeps(SHAPE, 0), "parse->parse->count": WindowKeeps(SHAPE, 3)}
    assert below.drops == {"parse->count": WindowKeeps(SHAPE, 4)}
    assert below.above == ("A.main",)


def test_a_query_below_reads_the_keeps_that_were_journaled_above(tmp_path: Path) -> None:
    network = parse_network(TEXT % "B")
    above, below = windows(network, tmp_path, "A")["A.main"], windows(network, tmp_path, "B")["B.count"]
    own = WindowKeeps(SHAPE, 4, ((FIRST_US, 900_000),))
    assert below.deciding([("parse->count", own)]) == [own]
    source, branch = (WindowKeeps(SHAPE, salt, ((FIRST_US, PPM), (5, salt))) for salt in (0, 3))
    above.publish("A.main", [("s", source), ("parse->parse->count", branch)])
    assert below.deciding([("parse->count", own)]) == [source, branch, own]
    again = source.changed(600_000, seen_us=40_000_000)
    above.publish("A.main", [("s", again), ("parse->parse->count", branch)])
    assert again in below.deciding([])


def test_a_stream_read_for_a_branch_without_windows_drops_at_random(tmp_path: Path) -> None:
    text = TEXT.replace("from: parse, kind", "from: s, kind")
    found = windows(parse_network(text % "A"), tmp_path)
    assert found["A.main"].drops == {}
    assert found["A.count"].drops == {"s->count": WindowKeeps(SHAPE, 0)}


def test_streams_without_an_event_time_and_jobs_with_a_buffer_drop_at_random() -> None:
    network = parse_network(TEXT.replace("max_rate: 10", "max_rate: 10, schema: id bigint") % "A")
    timeless = timeless_streams(network, JobOptions())
    assert set(drop_kinds(network, timeless)) == {"s", "parse->count"}
    assert all(kind.shape is None and "event_time" in kind.reason for kind in drop_kinds(network, timeless).values())
    good = parse_network(TEXT % "A")
    assert timeless_streams(good, JobOptions()) == {}
    assert "buffer" in timeless_streams(good, JobOptions(buffer="cwb"))["s"]
    assert "skip" in timeless_streams(good, JobOptions(on_loss="skip"))["s"]


def test_links_over_kafka_leave_windows_to_the_streams_that_are_counted_where_they_are_read() -> None:
    """What is put out there may go over a link too, where nothing below counts it again."""
    text = """
version: 1
name: n
streams: {s: {max_rate: 10}, t: {max_rate: 10}}
nodes: {A: {}, B: {}}
operators:
  parse: {node: A, from: s, cost: 0.1}
  far: {node: B, from: parse, kind: aggregate, window: 10s, slide: 5s, cost: 0}
  near: {node: A, from: t, kind: aggregate, window: 10s, slide: 5s, cost: 0}
  show: {node: B, from: near, cost: 0.1}
outputs: {q: {from: far}, p: {from: show}}
"""
    network = parse_network(text)
    timeless = timeless_streams(network, JobOptions(), over_kafka=True)
    assert set(timeless) == {"s"} and "Kafka" in timeless["s"]
    shapes = {at: kind.shape for at, kind in drop_kinds(network, timeless).items()}
    assert shapes == {"s": None, "t": SHAPE}
    assert timeless_streams(network, JobOptions()) == {}
