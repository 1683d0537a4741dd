"""Links between nodes over Kafka: a topic a link, a record a tuple, a partition a task of the writer; each tuple once.

A record is a tuple's columns (`source/decode.py: encode_rows`), its timestamp the tuple's first arrival, and its header
says which batch it is of:

    floodway = WRITER:BATCH:TASK:POSITION:COUNT       position of the tuple among the COUNT that the task delivers

A batch that is repeated after a crash delivers the same tuples. The writer puts them in an order of their bytes, looks
at the end of its partition for positions of this batch that are there already, and sends the others only: offsets count
tuples, and the topic holds what the ledger says. A producer's own repetitions are dropped by the broker (idempotence).

What the columns are is told by a record of the topic PREFIX.links, written before the first tuple.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from floodway.errors import FloodwayError, InputError
from floodway.json_text import load_json
from floodway.network.model import Arc
from floodway.spark.log.writer import Appended
from floodway.spark.source.decode import encode_rows
from floodway.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from confluent_kafka import Message

    from floodway.spark.source.kafka import KafkaBackend

SCHEME = "kafka://"
HEADER = "floodway"
_MOST_TOPIC = 249
_WRITER = {"enable.idempotence": "true", "compression.type": "lz4", "message.timeout.ms": "15000"}


_COUNT = re.compile(r"[0-9]{1,19}")


class LinkError(FloodwayError):
    """A link's topic that is not as its one writer left it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which tuple of which batch a record is.

    >>> Mark.parse(str(Mark("A.main@6f0c2c5e1b2a:a->b", 7, 0, 2, 10)).encode())
    Mark(writer='A.main@6f0c2c5e1b2a:a->b', batch=7, task=0, position=2, count=10)
    """

    writer: str
    batch: int
    task: int
    position: int
    count: int

    @classmethod
    def parse(cls, text: bytes) -> Mark | None:
        """The mark in a header; None if it is none."""
        writer, *numbers = text.decode("utf-8", "replace").rsplit(":", 4)
        if len(numbers) != 4 or not all(map(_COUNT.fullmatch, numbers)):
            return None
        return cls(writer, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.tag}:{self.position}:{self.count}"

    @property
    def tag(self) -> str:
        """What all records of one batch and task share."""
        return f"{self.writer}:{self.batch}:{self.task}"


@dataclass
class LinkCounts:
    """What a topic holds of the batches of known writers: tuples of each, and records that are there twice.

    `length` is the topic's whole length, `retired` the part that Kafka no longer has, `foreign` are records of others.
    `begins` says by writer, batch and partition where the batch's records begin, `ends` where each partition ends.
    """

    length: int = 0
    retired: int = 0
    repeated: int = 0
    foreign: int = 0
    batches: dict[str, Counter[int]] = field(default_factory=dict)
    begins: dict[tuple[str, int, int], int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def after(self, writer: str, batch: int) -> dict[int, int]:
        """By partition, where the records of a writer's later batches begin."""
        found = dict(self.ends)
        for (name, number, partition), at in self.begins.items():
            if name == writer and number > batch:
                found[partition] = min(found[partition], at)
        return found


def link_topic(prefix: str, arc: Arc) -> str:
    """The topic of a link, in the letters that Kafka allows; names with others, or too long, are told apart by a hash.

    >>> link_topic("net-1", Arc("a1", "b1"))
    'net-1.a1--b1'
    """
    name = f"{arc.producer}--{arc.consumer}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    most = _MOST_TOPIC - len(prefix) - 1
    if plain != name or len(plain) > most:
        digest = hashlib.sha256(str(arc).encode()).hexdigest()[:12]
        plain = f"{plain[: most - 13]}-{digest}"
    return f"{prefix}.{plain}"


def is_topic(address: object) -> bool:
    """Whether an address is a Kafka topic, written `kafka://host:port/topic`, and not a log."""
    return isinstance(address, str) and address.startswith(SCHEME)


def parse_kafka(address: str) -> tuple[str, str]:
    """`kafka://host:port[,host:port]/topic` as (servers, topic)."""
    servers, slash, topic = address.removeprefix(SCHEME).partition("/")
    if not (servers and slash and topic) or "/" in topic:
        raise InputError(f"{address!r} is not a Kafka address", hint="Write kafka://host:port/topic")
    return servers, topic


def is_kafka_link(sink: str, address: str) -> bool:
    """Whether this output or stream of a node's part is a link that goes over Kafka."""
    return "->" in sink and is_topic(address)


def prepare_link(address: str, schema: str, partitions: int) -> None:
    """Make the topic and tell its readers what its columns are, once; refuse one that was made for something else."""
    from floodway.spark.log.kafka_target import KafkaTarget

    servers, topic = parse_kafka(address)
    found = link_schema(address)
    if found not in (None, schema):
        raise LinkError(
            f"topic {topic} was made for '{found}', not for '{schema}'",
            hint="Give --links another prefix, and a new state folder with it",
        )
    # Arrival times are the writer's to give; a broker that stamps records itself would lose them.
    made = KafkaTarget(
        servers, topic, partitions=partitions, topic_settings={"message.timestamp.type": "CreateTime"}
    ).partitions
    if made != partitions:
        raise LinkError(
            f"topic {topic} has {made} partition(s), the node that writes it {partitions} task(s)",
            hint="Give --links another prefix, and a new state folder with it",
        )
    if found is None:
        about = KafkaTarget(servers, _about(topic), partitions=1, topic_settings={"cleanup.policy": "compact"})
        about.put(json.dumps({"v": 1, "schema": schema}).encode(), 0, key=topic.encode())
        about.close()


def link_schema(address: str) -> str | None:
    """The columns of a link as its writer told them; None while it has not, or the broker does not answer."""
    servers, topic = parse_kafka(address)
    try:
        backend = _records(servers, _about(topic))
        for message in _all(backend, 0):
            if message.key() == topic.encode():
                return str(load_json(message.value() or b"{}")["schema"])
    except (FloodwayError, ValueError, KeyError, TypeError):
        return None
    return None


class _Writer:
    """One process's connections to a topic it writes, and where it left each partition: they are costly to make."""

    def __init__(self, servers: str, topic: str) -> None:
        from floodway.spark.log.kafka_target import KafkaTarget

        self.topic = topic
        self.backend = _records(servers, topic)
        self.target = KafkaTarget(servers, topic, partitions=1, settings=_WRITER)
        self.left: dict[int, tuple[int, str]] = {}

    def append(self, records: Sequence[tuple[bytes, int]], partition: int, tag: str) -> Appended:
        end = self.backend.latest()[partition]
        left_at, before = self.left.get(partition, (-1, tag))
        there: set[int] = set()
        if left_at != end or before == tag:  # unless all that is there ends with a batch before, written here
            there = positions_of(tag, reversed_tail(self.backend, partition, end, len(records)))
        missing = [position for position in range(len(records)) if position not in there]
        for position in missing:
            value, millis = records[position]
            mark = f"{tag}:{position}:{len(records)}".encode()
            self.target.put(value, partition, timestamp_ms=millis, headers=[(HEADER, mark)])
        self.target.close()
        after = self.backend.latest()[partition]
        if after != end + len(missing):
            raise LinkError(
                f"topic {self.topic} partition {partition} grew by {after - end} record(s) while {len(missing)} "
                "were written",
                hint="Somebody else writes there: stop them; `floodway audit` tells what is there twice",
            )
        self.left[partition] = after, tag
        size = sum(len(records[position][0]) for position in missing)
        return Appended(end, len(missing), duplicate=len(missing) < len(records), bytes=size)


_writers: dict[str, _Writer] = {}


def append_link(rows: pa.Table, address: str, partition: int, tag: str, arrival: pa.Array | None) -> Appended:
    """Deliver the tuples of one task of a batch, those that are not there yet; how many that were, and their bytes.

    `tag` is WRITER:BATCH:TASK. Another writer of the partition at the same time is found and refused.
    """
    records = in_order(encode_rows(rows), _millis(arrival, rows.num_rows))
    try:
        if address not in _writers:
            _writers[address] = _Writer(*parse_kafka(address))
        return _writers[address].append(records, partition, tag)
    except BaseException:
        _writers.pop(address, None)  # what is left in its queues must not come later
        raise


def in_order(values: Sequence[bytes], millis: Sequence[int]) -> list[tuple[bytes, int]]:
    """A batch's records in an order that does not depend on the order in which Spark brought them.

    >>> in_order([b"b", b"a", b"a"], [1, 3, 2])
    [(b'a', 2), (b'a', 3), (b'b', 1)]
    """
    return sorted(zip(values, millis, strict=True))


def positions_of(tag: str, marks: Iterable[Mark | None]) -> set[int]:
    """The positions of one batch and task among marks that are read from the end back, until another batch begins.

    Records without a mark are not the writer's, and are passed over.
    """
    found: set[int] = set()
    for mark in marks:
        if mark is not None:
            if mark.tag != tag:
                break
            found.add(mark.position)
    return found


def reversed_tail(backend: KafkaBackend, partition: int, end: int, step: int) -> Iterator[Mark | None]:
    """Marks of a partition from its end back: the last one first, then `step` at a time."""
    low = backend.earliest()[partition]
    size = 1
    while end > low:
        start = max(low, end - size)
        messages = [m for part in backend.messages(partition, start, end) for m in part]
        yield from (_mark(message) for message in reversed(messages))
        end, size = start, max(step, 1)


Passed = tuple[int, Mapping[int, int]]
"""The last batch of a writer that was counted before, and by partition where later ones begin."""


def link_counts(address: str, writers: Iterable[str], passed: Mapping[str, Passed] | None = None) -> LinkCounts:
    """Count a topic's records by writer and batch, from their headers alone; those of `passed` batches are not read."""
    backend = _records(*parse_kafka(address))
    first, last = backend.earliest(), backend.latest()
    batches: dict[str, Counter[int]] = {writer: Counter() for writer in writers}
    before = {writer: (passed or {}).get(writer, (-1, {})) for writer in batches}
    counts = LinkCounts(length=sum(last.values()), batches=batches, ends=last)
    for partition in last:
        start = min((begins.get(partition, 0) for _, begins in before.values()), default=0)
        if first[partition] > start:
            counts.retired += first[partition]
        count_marks(counts, _later(counts, before, partition, _all(backend, partition, start)))
    return counts


def _later(
    counts: LinkCounts, before: Mapping[str, Passed], partition: int, messages: Iterable[Message]
) -> Iterator[Mark | None]:
    """The marks of batches that were not counted before; one of those that comes again is repeated."""
    for message in messages:
        mark, offset = _mark(message), message.offset() or 0
        if mark is not None and mark.writer in before:
            last, begins = before[mark.writer]
            if mark.batch <= last:
                counts.repeated += offset >= begins.get(partition, 0)
                continue
            counts.begins.setdefault((mark.writer, mark.batch, partition), offset)
        yield mark


def count_marks(counts: LinkCounts, marks: Iterable[Mark | None]) -> None:
    """Add the marks of one partition: a position of a batch counts once, what comes again is repeated.

    The writers are those that `counts` has batches of.
    """
    seen: dict[str, set[int]] = {}
    for mark in marks:
        if mark is None or mark.writer not in counts.batches:
            counts.foreign += 1
            continue
        positions = seen.setdefault(mark.tag, set())
        if mark.position in positions:
            counts.repeated += 1
        else:
            positions.add(mark.position)
            counts.batches[mark.writer][mark.batch] += 1


def _millis(arrival: pa.Array | None, rows: int) -> list[int]:
    if arrival is None:
        return [time.time_ns() // 1_000_000] * rows
    micros = arrival.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [micro // 1000 for micro in micros]


def _mark(message: Message) -> Mark | None:
    found = message.headers() or {}
    value = dict(found).get(HEADER)
    return Mark.parse(value) if isinstance(value, bytes) else None


def _all(backend: KafkaBackend, partition: int, start: int = 0) -> Iterator[Message]:
    first, last = backend.earliest(), backend.latest()
    if partition in last:
        for messages in backend.messages(partition, max(first[partition], start), last[partition]):
            yield from messages


def _records(servers: str, topic: str) -> KafkaBackend:
    from floodway.spark.source.kafka import KafkaBackend

    kafka = {"bootstrap.servers": servers}
    return KafkaBackend(SourceOptions(kafka=kafka, topic=topic, value_format="raw", timeout_seconds=10.0))


def _about(topic: str) -> str:
    """Where the links of one prefix are described; a link's own name has no dot."""
    return f"{topic.rpartition('.')[0]}.links"
