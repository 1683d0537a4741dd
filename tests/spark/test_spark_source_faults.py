"""Bad input to the Floodway source: one clear message, the checkpoint intact, a restart that continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from floodway.spark.log import Retention
from floodway.spark.session.session import explain
from tests.patience import PATIENCE_SECONDS
from tests.spark.source_job import Job, source_job

pytestmark = pytest.mark.spark


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Job]:
    yield from source_job(spark, tmp_path)


def first_segment(job: Job) -> Path:
    return min((job.log / "p0").glob("*.arrow"))


def newest_segment(job: Job) -> Path:
    return max((job.log / "p0").glob("*.arrow"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "no/such/log"}, "no log at no/such/log"),
        ({"schema": "id int"}, "column 'id' is id bigint"),
        ({"schema": "nothing string"}, "column 'nothing' is not there"),
        ({"maxTuplesPerBatch": "-3"}, "maxTuplesPerBatch is '-3'"),
        ({"typo": "x"}, "unknown option 'typo'"),
    ],
)
def test_load_fails_with_one_clear_message(job: Job, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        job.frame(**options)
    told = explain(caught.value)
    assert message in told and "Traceback" not in told and "\n" not in told


def lose_description(job: Job) -> Callable[[], object]:
    moved = (job.log / "meta.json").rename(job.log / "away")
    return lambda: moved.rename(job.log / "meta.json")


def tear_unread_segment(job: Job) -> Callable[[], object]:
    job.append(100, segments=2)
    torn = sorted((job.log / "p0").glob("*.arrow"))[-2]
    content = torn.read_bytes()
    torn.write_bytes(content[:-50])
    return lambda: torn.write_bytes(content)


def lie_about_a_segment(job: Job) -> Callable[[], object]:
    job.append(100)
    last = newest_segment(job)
    content = last.read_bytes()
    last.write_bytes(first_segment(job).read_bytes())
    return lambda: last.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lose_description, "no log at", marks=pytest.mark.slow),
        (tear_unread_segment, "is retired or missing, 25 tuple(s) lost"),
        pytest.param(lie_about_a_segment, "its name does not say what is in it", marks=pytest.mark.slow),
    ],
)
def test_damage_stops_the_query_clearly_and_repair_continues_it(
    job: Job, damage: Callable[[Job], Callable[[], object]], message: str
) -> None:
    job.append(200)
    frame = job.frame()
    query = job.start(frame)
    query.processAllAvailable()
    query.stop()
    repair = damage(job)
    with pytest.raises(StreamingQueryException) as caught:
        job.start(frame).processAllAvailable()
    told = explain(caught.value)
    assert message in told and "\n" not in told
    repair()
    job.append(100)
    query = job.start(frame)
    query.processAllAvailable()
    query.stop()
    assert job.ids() == job.everything()


def test_retired_tuples_fail_the_query_or_are_journaled_as_lost(job: Job) -> None:
    job.append(1_000, segments=5)
    query = job.start(maxTuplesPerBatch="200", available_now=True)
    assert query.awaitTermination(PATIENCE_SECONDS)
    job.append(1_000, segments=5)
    for partition in (0, 1):
        job.writer.retire(partition, Retention(max_bytes=0))
    with pytest.raises(StreamingQueryException) as caught:
        job.start().processAllAvailable()
    assert "800 tuple(s) lost" in explain(caught.value)
    query = job.start(onLoss="skip")
    query.processAllAvailable()
    query.stop()
    assert len(job.ids()) == 1_200
    assert job.offsets()[-1].lost == {0: 400, 1: 400}
    assert job.counts()[-1] == (1_000, 200)


def test_torn_decision_leaves_the_last_good_one_in_force(job: Job) -> None:
    job.decide(0)
    query = job.start()
    job.append(1_000)
    query.processAllAvailable()
    job.decision.write_text('{"mode": "enf')
    job.append(1_000)
    query.processAllAvailable()
    query.stop()
    # Also for a new process, which has seen no good file: the journal knows.
    job.append(1_000)
    query = job.start()
    query.processAllAvailable()
    query.stop()
    # A batch may be cut between what is appended to the one partition and to the other.
    assert job.ids() == [] and sum(offered for offered, _ in job.counts()) == 3_000
