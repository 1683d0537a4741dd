"""The log of malformed records takes any bytes, as they came."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from floodway.spark.log import LogReader
from floodway.spark.query.dead_letters import DeadLetters
from floodway.spark.query.sinks import _append
from floodway.spark.source.decode import ERROR, RAW, decode_json, json_schema


def test_bytes_that_are_no_text_are_kept_and_can_be_read(tmp_path: Path) -> None:
    values = [b'{"s": "\xff"}', b"{broken", b"\x00\xfe", None]
    bad = decode_json(values, json_schema("s string"))
    log = tmp_path / "letters"
    DeadLetters({}, tmp_path, log).create(1)
    letters = {"raw": bad.column(RAW), "reason": bad.column(ERROR), "origin_id": [0, 1, 2, 3], "weight": [1.0] * 4}
    _append(pa.table(letters), str(log), 0, "A.main:0:0")
    rows = [row for batch in LogReader(log).read(0, 0, 4) for row in batch.to_pylist()]
    assert [row["raw"] for row in rows] == [value or b"" for value in values]
    assert all(row["reason"] for row in rows)
