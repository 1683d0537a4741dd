"""Asking for executors: how many, how often, and that the loop of an overloaded shed does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodway.errors import InputError
from floodway.job.status.parts import executors_more
from floodway.spark.shed.executors import EVERY_SECONDS, ExecutorRequests, executor_requests, wanted_executors
from tests.spark.test_spark_shed_keys import NOISY, Tenants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_asks_for_what_is_needed_and_not_again_before_that_can_show() -> None:
    asked: list[int] = []
    requests = ExecutorRequests(lambda: 3 + sum(asked), asked.append, most=6)
    assert requests.take(None, 0.0) == requests.take(0.8, 0.0) == 0 and asked == []
    assert requests.take(1.5, 10.0) == 2
    assert requests.take(1.5, 10.0 + EVERY_SECONDS / 2) == 0
    assert requests.take(4.0, 10.0 + EVERY_SECONDS) == 1  # of five, and six are allowed
    assert requests.take(4.0, 10.0 + 2 * EVERY_SECONDS) == 0 and asked == [2, 1]
    assert wanted_executors(0, 5.0) == 0  # before the first has come nothing is known


def test_a_clock_set_back_delays_no_request_by_as_much() -> None:
    asked: list[int] = []
    requests = ExecutorRequests(lambda: 3, asked.append)
    assert requests.take(1.5, 90_000.0) == 2
    assert requests.take(1.5, 90_000.0 - 86_400.0) == 2
    assert requests.take(1.5, 90_000.0 - 86_400.0 + EVERY_SECONDS / 2) == 0 and asked == [2, 2]


def test_an_overloaded_shed_asks_and_one_that_keeps_up_does_not(tmp_path: Path) -> None:
    for rate, more in ((15_000.0, True), (300.0, False)):
        asked: list[int] = []
        job = Tenants(tmp_path / f"{rate:g}", NOISY, rate=rate)
        job.loop.executors = ExecutorRequests(lambda: 2, asked.append)
        job.loop.present = lambda: 2
        job.run(20)
        status = job.loop.files.read_status()
        assert status is not None and bool(status.executors_more) == more
        assert bool(asked) == more and all(1 <= one <= 2 for one in asked)


def test_a_shed_measures_what_an_executor_adds_when_one_comes(tmp_path: Path) -> None:
    job = Tenants(tmp_path / "job", NOISY)
    job.loop.present = lambda: 2
    job.run(20)
    status = job.loop.files.read_status()
    assert status is not None and status.capacity_needed is not None and status.executor_efficiency is None
    assert status.executors_more == executors_more(2, status.capacity_needed)
    job.loop.present = lambda: 3
    job.tuple_seconds /= 1.3  # of half as many more, each does 0.6 of what one did before
    job.run(20)
    status = job.loop.files.read_status()
    assert status is not None and status.executor_efficiency == pytest.approx(0.6, rel=0.15)
    assert status.executors_more == executors_more(3, status.capacity_needed, status.executor_efficiency)
    asked: list[int] = []
    job.start()  # what was measured is known after a restart
    job.loop.present, job.loop.executors = lambda: 3, ExecutorRequests(lambda: 3, asked.append)
    job.run(3)
    again = job.loop.files.read_status()
    assert again is not None and again.executor_efficiency == status.executor_efficiency
    assert asked == [min(3, again.executors_more or 0)]


@pytest.mark.spark
def test_a_session_without_dynamic_allocation_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        InputError, match=r"works with Spark's dynamic allocation, which is off\. Set spark\.dynamicAll"
    ):
        executor_requests(spark, "--ask-executors")
