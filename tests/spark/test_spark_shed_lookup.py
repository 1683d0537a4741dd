"""What a micro-batch looks up is what the control table says, for every timestamp."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from floodway.spark.shed.control_columns import (
    DECIDED,
    ENFORCED,
    KEEP,
    SALT,
    TIME,
    Decided,
    control_view,
    decision_columns,
    in_force_sql,
    with_control,
)
from floodway.spark.shed.control_table import MODES, Entry, Table, table_schema
from floodway.units import PPM

pytestmark = pytest.mark.spark

SEED = 20261118
LAST_US = 4000


def entries(rng: Random) -> Table:
    """A table after some changes, each with timestamps of batches that had begun."""
    table = Table(Entry(0, 0))
    for seq in range(1, 12):
        follows = rng.random() < 0.6
        entry = Entry(
            seq,
            0,
            keep_ppm=rng.choice((1, 1000, 333_333, 900_000, PPM)),
            salt=rng.randrange(-(1 << 60), 1 << 60),
            mode=rng.choice(MODES),
            budget=rng.uniform(0.0, 5e3) if follows else None,
            rate=rng.choice((0.0, 1e6, 3e6)) if follows else None,
            base_us=rng.randrange(LAST_US) if follows else None,
            surge=rng.choice((None, 1.0, 3.5)) if follows else None,
            until_us=rng.choice((None, rng.randrange(LAST_US))),
        )
        begins = [rng.randrange(LAST_US) for _ in range(rng.randrange(4))]
        table = table.changed(entry, [(begin, begin + rng.choice((1, 300))) for begin in begins])
    return table


def test_a_batch_finds_what_the_table_says(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(SEED)
    for number in range(4):
        table, file = entries(rng), tmp_path / f"{number}.json"
        file.write_bytes(table.encode())
        view = control_view(spark, file.as_uri(), table_schema(()), "_floodway_table")
        found = spark.sql(in_force_sql(f"(SELECT * FROM range({LAST_US}), {view})", time="id"))
        for row in found.select(*decision_columns()).collect():
            at, entry = row[TIME], table.at(row[TIME])
            seen, expired = Decided.read(row[DECIDED]), entry.expired(row[TIME])
            assert (seen.seq, seen.mode, row[SALT]) == (entry.seq, entry.mode, entry.salt), f"seed {SEED}, at {at}"
            assert row[ENFORCED] == seen.enforced == (entry.mode == "enforce" and not expired), f"seed {SEED}, at {at}"
            if not expired:
                assert row[KEEP] == seen.keep_ppm == entry.keep_at(at), f"seed {SEED}, at {at}"
            elif entry.mode == "enforce":
                assert seen.keep_ppm == PPM


def test_without_a_table_nothing_is_enforced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"version": 2, "lat')
    row = with_control(spark.range(1), (tmp_path / "torn.json").as_uri(), ()).collect()[0]
    assert (row[ENFORCED], row[KEEP], Decided.read(row[DECIDED])) == (False, None, Decided())
