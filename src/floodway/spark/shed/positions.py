"""Which positions of its source a micro-batch read, from Spark's progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from floodway.job.ledger.facts import OffsetRange
from floodway.job.store.store import Store, StoreError
from floodway.json_text import load_json
from floodway.planning.lag import Waiting

FIRST_BATCH = "Spark does not say where the first batch of a query begins"
NOT_RUN = "Spark repeated a batch whose results its sink had already, so nothing was read or counted"


def positions(sources: Sequence[Mapping[str, Any]]) -> tuple[tuple[OffsetRange, ...], str]:
    """The ranges of Kafka that a batch read, and why there are none.

    `sources` are those of a progress, each with `description`, `startOffset` and `endOffset`.
    """
    ranges: list[OffsetRange] = []
    if sources and all(map(_is_unread, sources)) and any(one["startOffset"] != one["endOffset"] for one in sources):
        return (), NOT_RUN
    for source in sources:
        if "kafka" not in source["description"].lower():
            return (), f"{source['description']} cannot be read again by position"
        if source["startOffset"] in (None, "null"):
            return (), FIRST_BATCH
        starts, ends = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        if starts is None or ends is None:
            return (), f"{source['description']} tells no offsets"
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                start = starts.get(topic, {}).get(partition, 0)
                if end > start:
                    ranges.append(OffsetRange(topic, int(partition), int(start), int(end)))
    return tuple(ranges), ""


def _is_unread(source: Mapping[str, Any]) -> bool:
    """Whether Spark repeats the batch, for which it asks no source for its latest offset, and reads nothing.

    It does so where the driver died between the commit of the sink and its own: file sinks know their batches again.
    """
    return source.get("numInputRows") == 0 and source.get("latestOffset", "") in (None, "null")


def journaled_ranges(checkpoint: Store, batch: int) -> tuple[OffsetRange, ...]:
    """The ranges of Kafka that a batch read, by the checkpoint of its query; empty where it does not tell.

    Spark journals the end of every batch, and of the first one Kafka's source leaves where it began.
    """
    try:
        ends = _journaled(checkpoint, batch)
        starts = _journaled(checkpoint, batch - 1) or [None] * len(ends)
        sources = [
            {"description": "Kafka", "startOffset": start or _first(checkpoint, number), "endOffset": end}
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        return positions(sources)[0]
    except (StoreError, ValueError, LookupError):
        return ()


def _journaled(checkpoint: Store, batch: int) -> list[str | None]:
    """The end of a batch in every source; none where there is no such batch."""
    raw = checkpoint.read(f"offsets/{batch}")
    lines = [] if raw is None else raw.decode().splitlines()[2:]
    return [None if line == "-" else line for line in lines]


def _first(checkpoint: Store, source: int) -> str | None:
    raw = checkpoint.read(f"sources/{source}/0")
    return None if raw is None else raw.decode().partition("\n")[2]


def backlog(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Tuples that were there when a batch was cut and that it left in the source: latest minus end offset.

    0 for a source that hands over all it has. None where the source does not tell, and for several sources, of which
    nothing says which one the tuples wait in.
    """
    if len(sources) != 1:
        return None
    latest, ends = _offsets(sources[0].get("latestOffset")), _offsets(sources[0]["endOffset"])
    if not latest or ends is None:
        return None
    return sum(
        max(0, int(last) - int(ends.get(topic, {}).get(partition, last)))
        for topic, partitions in latest.items()
        for partition, last in partitions.items()
    )


def waiting(sources: Sequence[Mapping[str, Any]]) -> tuple[Waiting, ...]:
    """What a batch left in every partition of Kafka that it read; empty where Spark does not tell."""
    found: list[Waiting] = []
    for source in sources:
        latest, ends = _offsets(source.get("latestOffset")), _offsets(source["endOffset"])
        if "kafka" in source["description"].lower() and latest and ends is not None:
            found += [
                Waiting(topic, int(partition), int(ends[topic][partition]), int(last))
                for topic, partitions in latest.items()
                for partition, last in partitions.items()
                if partition in ends.get(topic, {})
            ]
    return tuple(found)


def _offsets(text: object) -> dict[str, dict[str, int]] | None:
    try:
        found = load_json(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(isinstance(part, dict) for part in found.values()) else None
