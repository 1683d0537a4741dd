from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from floodway.spark.decision import Drop
from floodway.spark.log import LogWriter, create_log
from floodway.spark.side_output import dropped_sample
from floodway.spark.source.backend import Backend, open_backend
from floodway.spark.source.offsets import BatchOffset
from floodway.spark.source.options import parse_options


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    log = create_log(tmp_path / "s", "id bigint")
    with LogWriter(log.path, sync=False) as writer:
        writer.append(pa.table({"id": list(range(2000))}))
    return open_backend(parse_options({"path": str(log.path)}))


def batch(keep_ppm: int, drop: Drop = "hash") -> BatchOffset:
    return BatchOffset("s", {0: 0}, {0: 2000}, keep_ppm=keep_ppm, mode="enforce", drop=drop)


@pytest.mark.parametrize("drop", ["hash", "range"])
def test_the_sample_is_of_dropped_tuples_only_and_capped(backend: Backend, drop: Drop) -> None:
    offset = batch(400_000, drop)
    everything = dropped_sample(backend, offset, 10_000)
    assert everything is not None
    kept = sum(offset.admission.count(*piece) for piece in offset.ranges())
    assert everything.num_rows == 2000 - kept
    assert everything.column("origin_id").to_pylist() == everything.column("id").to_pylist()
    some = dropped_sample(backend, offset, 25)
    assert some is not None
    assert some.to_pylist() == everything.slice(0, 25).to_pylist()


def test_nothing_dropped_gives_no_sample(backend: Backend) -> None:
    assert dropped_sample(backend, batch(1_000_000), 10) is None
