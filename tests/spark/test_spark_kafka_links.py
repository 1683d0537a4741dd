"""Links over Kafka, as far as no broker is needed: marks, names, rows, accounts, and where a folder's links go."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodway.errors import InputError
from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.file import load_network
from floodway.network.model import Arc, Network
from floodway.spark.audit.nodes import LinkAccount, kafka_account
from floodway.spark.log import SchemaError
from floodway.spark.log.kafka_links import (
    LinkCounts,
    Mark,
    count_marks,
    in_order,
    is_kafka_link,
    link_topic,
    positions_of,
)
from floodway.spark.log.schema import parse_schema
from floodway.spark.query.layout import NodeLayout, parse_links
from floodway.spark.source.decode import decode_rows, encode_rows
from floodway.spark.source.options import parse_options

LINK = "a1->b1"
WRITER = f"A.main:{LINK}"


@pytest.fixture
def network() -> Network:
    return load_network(Path("examples/networks/figure1.yaml"))


def marks(batch: int, positions: list[int], count: int = 10, writer: str = WRITER) -> list[Mark | None]:
    return [Mark(writer, batch, 0, position, count) for position in positions]


@pytest.mark.parametrize("text", [b"", b"A.main", b"A.main:1:0:2", b"A.main:1:0:x:3", b"A.main:1:0:-1:3", b"\xff:::"])
def test_what_is_no_mark(text: bytes) -> None:
    assert Mark.parse(text) is None


@given(st.text(), st.integers(0, 2**40), st.integers(0, 99), st.integers(0, 10**6), st.integers(0, 10**6))
def test_marks_there_and_back(query: str, batch: int, task: int, position: int, count: int) -> None:
    mark = Mark(query, batch, task, position, count)
    assert Mark.parse(str(mark).encode("utf-8", "replace")) == Mark(
        query.encode("utf-8", "replace").decode(), batch, task, position, count
    )


def test_a_repeated_batch_finds_what_is_there_already() -> None:
    tag = f"{WRITER}:7:0"
    assert positions_of(tag, marks(6, [9, 8, 7])) == set()
    assert positions_of(tag, [*marks(7, [2, 1, 0]), *marks(6, [9, 8])]) == {0, 1, 2}
    assert positions_of(tag, [None, *marks(7, [1]), None, *marks(7, [0]), *marks(6, [5])]) == {0, 1}
    assert positions_of(tag, []) == set()


@given(st.permutations(range(12)), st.integers(0, 12))
def test_whatever_order_spark_brings_and_wherever_the_kill_hits_each_tuple_is_there_once(
    order: list[int], written: int
) -> None:
    tuples = [(b"%d" % (number // 2), number % 3) for number in range(12)]  # some of them alike
    first = in_order([value for value, _ in tuples], [millis for _, millis in tuples])
    again = in_order([tuples[i][0] for i in order], [tuples[i][1] for i in order])
    there = positions_of(f"{WRITER}:0:0", reversed(marks(0, list(range(written)), 12)))
    topic = first[:written] + [again[position] for position in range(12) if position not in there]
    assert Counter(topic) == Counter(tuples)


def test_topics_are_told_apart_whatever_the_names_are() -> None:
    names = ["a1", "a.1", "a_1", "ä1", "a 1", "x" * 100, "x" * 99 + "."]
    topics = {link_topic("p" * 100, Arc(one, other)) for one in names for other in names}
    assert len(topics) == len(names) ** 2
    for topic in topics:
        prefix, _, name = topic.rpartition(".")
        assert prefix == "p" * 100 and len(topic) <= 249
        assert name.replace("-", "").replace("_", "").isalnum() and name.isascii()


def test_only_links_are_written_with_marks() -> None:
    assert is_kafka_link(LINK, "kafka://h:1/t")
    assert not is_kafka_link("q1", "kafka://h:1/t")
    assert not is_kafka_link(LINK, "state/links/a1--b1")


def test_rows_of_every_type_come_back_as_they_were() -> None:
    ddl = (
        "id bigint, x double, name string, raw binary, at timestamp, day date, price decimal(10,2), "
        "tags array<string>, more map<string,bigint>, inner struct<a:int,b:timestamp>, yes boolean"
    )
    when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    rows = [
        (1, float("inf"), "ä\n", b"\0\xff", when, when.date(), Decimal("1.10"), ["x", None], [("k", 1)]),
        (None, None, "", b"", None, None, None, [], []),
    ]
    schema = parse_schema(ddl)
    columns = [*zip(*rows, strict=True), ({"a": 1, "b": when}, None), (True, None)]
    table = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    found = decode_rows(encode_rows(table), schema, where="topic t")
    assert pa.Table.from_batches([found]).equals(table)
    assert decode_rows([], schema, where="topic t").num_rows == 0


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\xff" * 100])
def test_a_record_of_another_program_is_refused(value: bytes | None) -> None:
    with pytest.raises(SchemaError, match="topic t holds a record that is no tuple of 'id bigint'"):
        decode_rows([value], parse_schema("id bigint"), where="topic t")


def test_arrow_values_need_a_schema() -> None:
    topic = {"topic": "t", "kafka.bootstrap.servers": "h:1", "valueFormat": "arrow"}
    assert parse_options({**topic, "schema": "id bigint"}).value_format == "arrow"
    with pytest.raises(InputError, match="Arrow values need"):
        parse_options(topic)


def account(counts: LinkCounts, delivered: dict[int, int], offered: int) -> LinkAccount:
    written = [LedgerLine("A.main", batch, LINK, Reason.DELIVERED, n, n, 0) for batch, n in delivered.items()]
    empty = LinkAccount(LINK, "A", "B", sum(delivered.values()), 0, 0, offered)
    return kafka_account(empty, counts, written)


def topic(*records: list[Mark | None], retired: int = 0) -> LinkCounts:
    """The counts of a topic of one partition that holds these records."""
    found = [mark for part in records for mark in part]
    counts = LinkCounts(length=retired + len(found), retired=retired, batches={WRITER: Counter()})
    count_marks(counts, found)
    return counts


def test_a_topic_agrees_with_the_ledgers() -> None:
    counts = topic(marks(0, list(range(10))), marks(1, [0, 1, 2], 3))
    found = account(counts, {0: 10, 1: 3}, offered=10)
    assert found.differences() == [] and (found.in_log, found.waiting) == (13, 3)
    unfinished = account(counts, {0: 10}, offered=13)
    assert unfinished.differences() == [] and unfinished.unfinished == 3


def test_records_that_are_there_twice_are_told() -> None:
    found = account(topic(marks(0, [0, 1, 2, 3, 2, 3], 4)), {0: 4}, offered=6)
    assert found.repeated == 2 == found.to_dict()["repeated"]
    assert found.differences() == [f"{LINK}: 2 record(s) are in the topic twice; did two A run?"]


def test_a_ledger_that_does_not_fit_the_topic_is_found() -> None:
    found = account(topic(marks(0, [0, 1], 2), marks(1, [0], 1)), {0: 3, 1: 0}, offered=4)
    assert len(found.differences()) == 3
    assert "batch 0: the ledger says 3 tuples were delivered, the topic holds 2" in found.differences()[0]
    assert "B's ledger was offered 4, the log holds 3" in found.differences()[2]
    stranger = account(topic(marks(0, [0], 1), [None], marks(0, [0], 1, "Z.main:a->b")), {0: 1}, offered=1)
    assert any("2 record(s) in the topic are not A's" in text for text in stranger.differences())


def test_what_kafka_has_retired_is_not_held_against_anyone() -> None:
    counts = topic(marks(3, [8, 9]), marks(4, [0, 1], 2), retired=38)
    found = account(counts, {0: 10, 1: 10, 2: 10, 3: 10, 4: 2}, offered=40)
    assert found.differences() == [] and found.in_log == 42


@pytest.mark.parametrize(
    "text", ["", "kafka://", "h:9092", "kafka://h", "kafka://h:1/a b", "kafka://h:1/a/b", "x://h:1"]
)
def test_addresses_of_links_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="is not an address for links"):
        parse_links(text, "net")


def test_a_folder_stays_with_the_links_it_began_with(network: Network, tmp_path: Path) -> None:
    layout = NodeLayout(tmp_path / "state")
    assert layout.links() is None and layout.link(Arc("a1", "b1")).endswith("links/a1--b1")
    layout.choose_links("kafka://h:1,i:2", network)
    first = layout.links()
    layout.choose_links("kafka://h:1,i:2", network)  # the next node: the same made-up prefix
    assert first is not None and layout.links() == first
    writer, reader = layout.part(network, "A"), layout.part(network, "B")
    assert writer.outputs[LINK].sink == reader.streams[LINK].log == f"kafka://h:1,i:2/{first.prefix}.a1--b1"
    with pytest.raises(InputError, match="not over kafka://h:1,i:2/mine"):
        layout.choose_links("kafka://h:1,i:2/mine", network)
    with pytest.raises(InputError, match="not over kafka://other:1"):
        layout.choose_links("kafka://other:1", network)
    (tmp_path / "state" / "links.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        layout.links()


def test_a_folder_whose_nodes_have_run_with_logs_stays_with_them(network: Network, tmp_path: Path) -> None:
    (tmp_path / "nodes" / "A" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match="have run with links through logs"):
        NodeLayout(tmp_path).choose_links("kafka://h:1", network)
