"""What a batch admitted and what it dropped are together all that it settled, whatever decided."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from floodway.spark.source.admit import AT, output_schema, refused
from floodway.spark.source.keys import KeyDrops
from floodway.spark.source.offsets import BatchOffset, parse_offset
from floodway.units import PPM
from tests.spark.test_spark_source_keys import SCHEMA, Clicks, admitted, cut

SIZE = 3000


def clicks() -> Clicks:
    rng = random.Random(3)
    rows = [(rng.choice(["noisy"] * 8 + ["a", "b", None]), rng.randrange(40)) for _ in range(2 * SIZE)]
    return Clicks(rows[:SIZE], rows[SIZE:])


def whole(**options: Any) -> BatchOffset:
    start, end = {0: 0, 1: 100}, {0: SIZE, 1: SIZE}
    return BatchOffset("s", start, end, salt=9, **{"mode": "enforce", **options})


BATCHES = {
    "hash": whole(keep_ppm=300_000),
    "range": whole(keep_ppm=300_000, drop="range"),
    "observe": whole(keep_ppm=300_000, mode="observe", stale={0: 50}),
    "skipped": whole(keep_ppm=700_000, lost={0: 10}, stale={0: 500, 1: 20}, lag={0: 7}),
    "buffer": whole(keep_ppm=800_000, queues={0: (200, 350, 1500, PPM, SIZE, 400_000), 1: (100, 100, SIZE, 600_000)}),
    "shares": cut(clicks(), 400_000, KeyDrops("tenant")),
    "rare": cut(clicks(), 50_000, KeyDrops(rare_by="page", keep_rare=2)),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_admitted_and_dropped_are_all(batch: BatchOffset) -> None:
    batch, log = parse_offset(json.dumps(batch.to_json())), clicks()
    kept = [row["_id"] for row in admitted(log, batch)]
    schema = output_schema(SCHEMA, (), ("_id", "_arrival"), with_place=True)
    rows = [
        row for part in batch.settled() for one in refused(log, batch, part, 7, schema) for row in one.to_pylist()
    ]  # fmt: skip
    account = batch.account()
    offered = {
        (partition << 48) + position
        for partition, end in batch.end.items()
        for position in range(batch.start[partition] + batch.lost.get(partition, 0), end)
    }
    assert sorted([*kept, *(row["_id"] for row in rows)]) == sorted(offered)
    assert len(rows) == account.offered - account.retention - account.kept
    assert {row[AT] for row in rows} <= {7}
    assert np.all([row["page"] == log.rows[row["_id"] >> 48][row["_id"] & (1 << 48) - 1][1] for row in rows])
