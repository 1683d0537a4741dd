"""What the ledger says was delivered, against what lies in the sinks.

| sink | how it is counted |
| --- | --- |
| log | by the batch's tag in its segments; tuples under no tag are a difference |
| format:path | by batch folder: rows of Parquet and ORC, lines of JSON and text; of others whether they are there |
| kafka://… | it has had no less than what was delivered: a topic may repeat a batch, and others may write to it |
| console | not at all |

Other runs may write to a sink that the network file names: how much is said, and not compared. The last batch may have
reached the sink and not the ledger: it will be repeated, and find itself there. What an earlier audit has compared is
not looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodway.errors import FloodwayError
from floodway.job.ledger.audit_point import Findings
from floodway.spark.log import tally
from floodway.spark.log.inputs import open_input
from floodway.spark.log.kafka_links import is_kafka_link, is_topic
from floodway.spark.log.meta import META
from floodway.spark.query.sinks import batch_folder, writer_of

_BATCH = "batch="
_TAG_NUMBERS = 2
_NEVER = 1 << 62


@dataclass
class LogCounts:
    """Tuples in a log by batch of one writer, those of others by writer, those under no tag, and how many ever came.

    Where retention has taken the oldest segments, batches are whole from `whole_from` on. `torn` are segments. `begins`
    says by batch and partition where the writer's tuples begin, `ends` where each partition ends.
    """

    length: int = 0
    retired: int = 0
    untagged: int = 0
    torn: int = 0
    whole_from: int = 0
    batches: Counter[int] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    begins: dict[tuple[int, int], int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)

    def after(self, batch: int) -> dict[int, int]:
        """By partition, where the tuples of later batches begin."""
        found = dict(self.ends)
        for (number, partition), at in self.begins.items():
            if number > batch:
                found[partition] = min(found[partition], at)
        return found


@dataclass(frozen=True, slots=True)
class AuditedPart:
    """What earlier audits have compared in a sink: batches up to `last`, `tuples` of them, which lie before `next`.

    The ledger has lines from batch `first` on: what was before may be in the sink, and was not compared. `tuples` is
    None where they are not known.
    """

    last: int = -1
    tuples: int | None = 0
    next: Mapping[int, int] = field(default_factory=dict)
    first: int = 0


NOTHING = AuditedPart()


@dataclass(frozen=True, slots=True)
class SinkBooks:
    """What the ledger says was delivered to a sink, by batch since the audit that had compared `before`.

    `others` are further writers of the same ledger; where a sink is `shared`, writers of other runs may come as well.
    """

    name: str
    said: Mapping[int, int]
    before: AuditedPart = NOTHING
    others: Collection[str] = ()
    shared: bool = False

    @property
    def total(self) -> int | None:
        """Tuples ever; None where they are not known."""
        return None if self.before.tuples is None else self.before.tuples + sum(self.said.values())

    @property
    def last(self) -> int:
        """The last batch."""
        return max(self.said, default=self.before.last)


def count_log(log: Path, writer: str, since: Mapping[int, int] | None = None) -> LogCounts:
    """Count a log's tuples by their tags WRITER:BATCH:PARTITION; with `since` those from there on, by partition."""
    held = tally(log, since)
    retired = {partition: first for partition, first in held.retired.items() if first > (since or {}).get(partition, 0)}
    counts = LogCounts(sum(held.ends.values()), sum(retired.values()), held.untagged, held.torn, ends=held.ends)
    oldest = dict.fromkeys(retired, _NEVER)
    for tag, count in held.tagged.items():
        name, *numbers = tag.rsplit(":", _TAG_NUMBERS)
        if len(numbers) != _TAG_NUMBERS or not all(number.isdecimal() for number in numbers):
            counts.untagged += count
        elif name == writer:
            batch, partition = map(int, numbers)
            counts.batches[batch] += count
            counts.begins[batch, held.begins[tag][0]] = held.begins[tag][1]
            if partition in oldest:
                oldest[partition] = min(oldest[partition], batch)
        else:
            counts.others[name] += count
    counts.whole_from = max(oldest.values(), default=0)
    return counts


def check_sink(address: str, query: str, books: SinkBooks, found: Findings) -> LogCounts | None:
    """Compare with what is in a sink that is no link over Kafka; returns what was counted, if it is a log."""
    if is_topic(address):
        if is_kafka_link(books.name, address):
            found.unchecked.append(f"{books.name}: a link over Kafka, counted where both its nodes are audited")
        else:
            _check_topic(address, books, found)
    elif address == "console":
        found.unchecked.append(f"{books.name}: went to the console, so its tuples were not counted")
    elif ":" in address:
        kind, _, path = address.partition(":")
        check_files(kind, path, query, books, found)
    else:
        return check_log(Path(address), writer_of(query, books.name), books, found)
    return None


def check_log(log: Path, writer: str, books: SinkBooks, found: Findings) -> LogCounts | None:
    """Compare with the tuples in a log under each batch's tag; returns what was counted."""
    sink, before, total = books.name, books.before, books.total
    if not (log / META).exists():
        if total:
            found.differences.append(
                f"{sink}: the ledger says {total} tuples were delivered, but there is no log {log}"
            )
        return None
    try:
        counts = count_log(log, writer, before.next)
    except FloodwayError as error:
        found.differences.append(f"{sink}: the log cannot be read: {error.message}")
        return None
    from_batch = max(counts.whole_from, before.first)
    whole = {batch: count for batch, count in books.said.items() if batch >= from_batch}
    there = {batch: count for batch, count in counts.batches.items() if from_batch <= batch <= books.last}
    found.compare(sink, "the log holds", whole, there)
    if late := sum(count for batch, count in counts.batches.items() if batch <= before.last):
        found.differences.append(f"{sink}: {late} tuple(s) of batches up to {before.last} came after they were audited")
    strangers = {name: count for name, count in counts.others.items() if name not in books.others}
    foreign = counts.untagged + (0 if books.shared else sum(strangers.values()))
    if foreign:
        found.differences.append(f"{sink}: {foreign} tuple(s) in the log were not delivered by {writer}")
    if strangers and books.shared:
        found.unchecked.append(
            f"{sink}: {sum(strangers.values())} tuple(s) in the log were delivered by {len(strangers)} other writer(s)"
        )
    if counts.torn:
        found.differences.append(f"{sink}: {counts.torn} torn segment(s) in the log {log}")
    if counts.retired:
        found.unchecked.append(f"{sink}: the log has let {counts.retired} tuples go, which were only summed up")
    if (counts.retired or before != NOTHING) and total is not None and not books.others and not books.shared:
        # What was retired cannot be counted by batch any more, but numbers go on: the sum still tells.
        unfinished = sum(count for batch, count in counts.batches.items() if batch > books.last)
        ever = counts.length - foreign - unfinished
        if total != ever:
            found.differences.append(
                f"{sink}: the ledger says {total} tuples were delivered in all, {ever} were appended to the log"
            )
    return counts


def _check_topic(address: str, books: SinkBooks, found: Findings) -> None:
    sink, total = books.name, books.total
    if total is None:
        found.unchecked.append(f"{sink}: how many tuples {address} should have is not known, so it was not compared")
        return
    try:
        length = sum(open_input(address).latest().values())
    except FloodwayError as error:
        found.unchecked.append(f"{sink}: {address} was not counted: {error.message}")
        return
    if length < total:
        found.differences.append(f"{sink}: the ledger says {total} tuples were delivered, {address} has had {length}")
    else:
        found.unchecked.append(
            f"{sink}: {address} has had {length} records, of which {total} should be this run's; a topic may repeat "
            "batches and has other writers, so they were not counted one by one"
        )


def check_files(kind: str, path: str, query: str, books: SinkBooks, found: Findings) -> None:
    """Compare with the rows in the query's own folders of a file format."""
    sink = books.name
    if "://" in path:
        found.unchecked.append(f"{sink}: {path} is on another file system, so its tuples were not counted")
        return
    # By number and not by listing, which would take longer with every batch.
    batches = range(books.before.first, books.last + 1)
    wanted = {batch: Path(batch_folder(path, query, sink, batch)) for batch in batches}
    folders = {batch: folder for batch, folder in wanted.items() if folder.is_dir()}
    count = _COUNTERS.get(kind)
    if count is None:
        found.unchecked.append(f"{sink}: rows of {kind} files were not counted, only whether they are there")
        missing = [batch for batch, rows in books.said.items() if rows and batch not in folders]
        found.differ(
            f"{sink}, batch {batch}: the ledger says {books.said[batch]} tuples, no {_BATCH}{batch} in {path}"
            for batch in sorted(missing)
        )
        return
    try:
        rows = {
            batch: sum(count(file) for file in folder.iterdir() if file.is_file() and file.name[0] not in "._")
            for batch, folder in folders.items()
        }
    except (OSError, ValueError) as error:
        found.differences.append(f"{sink}: {path} cannot be read: {error}")
        return
    found.compare(sink, f"{path} holds", books.said, rows)


def _parquet_rows(file: Path) -> int:
    from pyarrow import parquet

    return int(parquet.read_metadata(file).num_rows)


def _orc_rows(file: Path) -> int:
    from pyarrow import orc

    return int(orc.ORCFile(file).nrows)


def _text_rows(file: Path) -> int:
    if file.suffix not in (".json", ".txt"):
        raise ValueError(f"{file.name} is compressed")
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


_COUNTERS: Mapping[str, Callable[[Path], int]] = {
    "parquet": _parquet_rows,
    "orc": _orc_rows,
    "json": _text_rows,
    "text": _text_rows,
}
