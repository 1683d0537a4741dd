"""What a batch left in the source, from Spark's progress."""

from __future__ import annotations

import json

import pytest

from floodway.planning.lag import Waiting
from floodway.spark.shed.checkpoints import backlog, waiting
from floodway.spark.source.offsets import BatchOffset


def source(end: str | None, latest: str | None) -> dict[str, str | None]:
    """The part of a source's progress that is read."""
    return {"description": "KafkaV2[Subscribe[clicks]]", "endOffset": end, "latestOffset": latest}


END = '{"clicks":{"0":100,"1":250}}'


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        (END, 0),
        ('{"clicks":{"0":130,"1":250}}', 30),
        ('{"clicks":{"0":130,"1":260},"views":{"0":7}}', 40),
        ('{"clicks":{"0":90,"1":250}}', 0),
        (None, None),
        ("null", None),
        ("17", None),
        ("{broken", None),
        ('{"shard-0":{"iteratorType":"AFTER_SEQUENCE_NUMBER","iteratorPosition":"4957"}}', None),
    ],
    ids=[
        "all taken",
        "a limit",
        "a topic that is new",
        "a topic that was made anew",
        "unknown",
        "null",
        "other",
        "torn",
        "Kinesis",
    ],
)
def test_backlog_is_latest_minus_end(latest: str | None, expected: int | None) -> None:
    assert backlog([source(END, latest)]) == expected


def test_a_floodway_source_tells_it_too() -> None:
    end = BatchOffset("clicks", {0: 0, 1: 0}, {0: 100, 1: 250}).to_json()
    latest = '{"pos": {"0": 130, "1": 250}}'
    assert backlog([{"description": "floodway", "endOffset": json.dumps(end), "latestOffset": latest}]) == 30
    assert backlog([{"description": "floodway", "endOffset": json.dumps(end), "latestOffset": None}]) is None


def test_of_several_sources_nobody_knows_which_one_is_behind() -> None:
    one = source(END, '{"clicks":{"0":130,"1":250}}')
    assert backlog([one, one]) is None
    assert backlog([]) is None


def test_what_waits_is_known_of_every_partition_that_was_read() -> None:
    one = source(END, '{"clicks":{"0":130,"1":250},"views":{"0":7}}')
    assert waiting([one]) == (Waiting("clicks", 0, 100, 130), Waiting("clicks", 1, 250, 250))
    assert waiting([source(END, None), source(END, "{broken")]) == ()
