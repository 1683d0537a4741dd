"""Figures that a job adds up as it runs are those that others read from its state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodway.job.ledger.ledger import LedgerLine
from floodway.job.status.batches import Batch, Sketch
from floodway.job.status.figures import BATCH_SECONDS, Figures
from floodway.job.status.status import Place, Rates, Status

START = 1_000_000


def finished(number: int, *, every: int = 1, offered: int = 300, kept: int = 200) -> tuple[list[LedgerLine], Batch]:
    second = START + every * number
    lines = [
        LedgerLine("q", number, "s", "shedder", offered, kept + 20, offered - kept - 20, time_us=second * 1_000_000),
        LedgerLine("q", number, "s", "cleaner", kept + 20, kept, 20, time_us=second * 1_000_000),
        LedgerLine("q", number, "out", "delivered", kept, kept, 0, time_us=second * 1_000_000),
    ]
    return lines, Batch("q", number, second - 1.0, float(second), latencies=Sketch.of([(1.5, kept)]))


def figures(batches: int, **more: int) -> Figures:
    found = Figures()
    for number in range(batches):
        found.add(*finished(number, **more))
    return found


def test_a_batch_that_is_repeated_counts_once() -> None:
    found = figures(3)
    found.add(*finished(2))
    assert (found.fold.total.offered["s"], found.fold.total.kept["s"], found.fold.lines) == (900, 600, 9)


def test_rates_and_latency_are_those_of_the_last_seconds() -> None:
    found = figures(30)
    found.add(*finished(30, offered=900, kept=100))
    place = found.places({"s": 0.7}, START + 31.0)["s"]
    assert place.rates == Rates((9 * 300 + 900) / 10, (9 * 200 + 100) / 10)
    assert (place.keep, place.offered, place.kept) == (0.7, 30 * 300 + 900, 30 * 200 + 100)
    assert found.latency(2.0).mean == pytest.approx(1.5)


def test_a_long_batch_is_awaited_and_then_its_absence_counts() -> None:
    found = figures(20, every=3)
    last = START + 3 * 19 + 1
    assert found.places({}, last + BATCH_SECONDS)["s"].rates.offered == pytest.approx(100.0)
    assert found.places({}, last + 60.0)["s"].rates == Rates(0.0, 0.0)


def test_before_the_first_batch_nothing_is_known() -> None:
    place = Figures().places({"s": 0.7}, 5.0, arriving={"s": 10.0}, waiting={"s": 4})["s"]
    assert place == Place(0.7, arriving=10.0, waiting=4)
    assert Figures().latency(2.0).mean is None


def test_a_status_is_refreshed_with_what_is_on_record() -> None:
    told = Status("job", "run", "enforce", START + 5.0, places={"s": Place(0.7, arriving=310.0, waiting=4)})
    found = figures(20).refreshed(told)
    assert (found.totals.offered, found.totals.kept, found.totals.dropped) == (
        6000, 4000, {"shedder": 1600, "cleaner": 400},
    )  # fmt: skip
    assert found.rates == Rates(300.0, 200.0)
    assert found.loss == pytest.approx(1 / 3)
    assert (found.places["s"].keep, found.places["s"].arriving, found.places["s"].waiting) == (0.7, 310.0, 4)
    assert (found.batch_count, found.delivered) == (20, {"out": 4000})
    assert found.ledger is not None and found.ledger.differences == ()


@pytest.mark.parametrize("back", [60, 3600, 86_400])
def test_a_clock_set_back_leaves_no_old_rate_and_latency_in_the_status(back: int) -> None:
    found = figures(30)
    for number in range(30, 60):
        lines, _ = finished(number - back, offered=900, kept=100)
        second = START + number - back
        batch = Batch("q", number, second - 1.0, float(second), latencies=Sketch.of([(9.0, 100)]))
        found.add([replace(line, batch=number) for line in lines], batch)
    now = START + 60.5 - back
    assert found.places({}, now)["s"].rates == Rates(900.0, 100.0)
    assert found.latency(2.0, now).mean == found.latency(2.0).mean == pytest.approx(9.0)
    told = Status("job", "shed", "enforce", now, places={"s": Place(0.7)})
    assert found.refreshed(told).rates == Rates(900.0, 100.0)
