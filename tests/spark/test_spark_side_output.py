from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from floodway.job.decision import Drop
from floodway.spark.log import LogWriter, Retention, create_log, tally
from floodway.spark.query import fragment_sources
from floodway.spark.query.fragment_sources import dropped_sample, save_sample
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


def test_the_side_output_is_capped_in_all_and_takes_a_batch_once(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragment_sources, "MOST_BYTES", 50_000)
    sample = dropped_sample(backend, batch(400_000), 100)
    assert sample is not None
    path = tmp_path / "dropped"
    for number in range(60):
        save_sample(path, sample, stream="s", tag=f"A.main:{number}")
    save_sample(path, sample, stream="s", tag="A.main:59")
    assert sum(file.stat().st_size for file in (path / "p0").glob("*.arrow")) <= 50_000
    counted = tally(path)
    assert counted.tagged["A.main:59"] == 100 and counted.retired[0] + sum(counted.tagged.values()) == 6000
    lower = Retention(max_bytes=10_000)
    save_sample(path, sample, stream="s", tag="A.main:60", retention=lower)
    assert sum(file.stat().st_size for file in (path / "p0").glob("*.arrow")) <= 10_000
