"""From finished batches to the keep: rates, pauses, what waits in a source with a read limit."""

from __future__ import annotations

import pytest

from floodway.control.loop import FinishedBatch, KeepDecision, KeepLoop
from floodway.control.registry import make_controller

TARGET = 3.0


def loop() -> KeepLoop:
    return KeepLoop(make_controller("batch", target_seconds=TARGET))


def feed(steered: KeepLoop, batches: list[FinishedBatch], keep: float = 1.0) -> KeepDecision:
    """The decision after the last of these batches."""
    decided = [steered.step(batch, keep_in_force=keep, target_seconds=TARGET) for batch in batches][-1]
    assert decided is not None
    return decided


def test_the_first_batch_and_an_empty_one_decide_nothing() -> None:
    steered = loop()
    assert steered.step(FinishedBatch(0.0, 5.0, 100, 100), 1.0, TARGET) is None
    assert steered.step(FinishedBatch(5.0, 0.2, 0, 0), 1.0, TARGET) is None
    assert steered.step(FinishedBatch(5.2, 0.3, 100, 100), 1.0, TARGET) is not None


def test_the_rate_is_that_of_the_last_batches_and_begins_anew_after_a_step() -> None:
    steered = loop()
    steady = feed(steered, [FinishedBatch(float(i), 1.0, 1000 + (50 if i % 2 else -50), 500) for i in range(6)])
    assert steady.offered_rate == pytest.approx(1000.0, rel=0.03)
    assert feed(steered, [FinishedBatch(6.0, 1.0, 2000, 500)]).offered_rate == 2000.0
    assert feed(steered, [FinishedBatch(7.0, 1.0, 900, 500)]).offered_rate == 900.0


def test_a_query_that_waits_for_its_trigger_is_offered_what_comes_between_two_triggers() -> None:
    steered = loop()
    decided = feed(steered, [FinishedBatch(10.0 * i, 0.5, 10_000, 10_000) for i in range(6)])
    assert decided.offered_rate == pytest.approx(1000.0)
    assert decided.budget is None, "its length says nothing about what the next batch is offered"


def of_lengths(counts: list[int]) -> list[FinishedBatch]:
    """Batches back to back, P = 0.2 + 0.001 n: one of 2 s, that of the target, holds 1800 tuples, 900 a second."""
    found, start = [], 0.0
    for count in counts:
        seconds = 0.2 + 0.001 * count
        found.append(FinishedBatch(start, seconds, count, count))
        start += seconds
    return found


def test_near_the_capacity_a_batch_that_runs_long_is_taken_for_a_load_that_rises() -> None:
    decided = feed(loop(), of_lengths([760, 840, 800] * 12))
    budget = decided.budget
    assert budget is not None and decided.offered_rate == pytest.approx(800.0, rel=0.02)

    def offered(seconds: float) -> float:
        return budget.surge * decided.offered_rate * (seconds - budget.delay_seconds)

    assert offered(1.0) == pytest.approx(800, rel=0.05), "as long as expected: the rate is what it was"
    # In 2 s it held 1800 tuples, which came in the 1 s of the batch before; meanwhile twice as many come.
    assert offered(2.0) == pytest.approx(3600, rel=0.1)


def test_far_below_the_capacity_it_is_taken_for_a_pause() -> None:
    budget = feed(loop(), of_lengths([150, 170, 160] * 8)).budget
    assert budget is not None
    assert (budget.surge, budget.delay_seconds) == (1.0, 0.0)


def test_what_a_read_limit_leaves_in_the_source_counts_as_arrived_and_as_waiting_time() -> None:
    """2000 tuples/s arrive, a batch takes 1000 at most per second: the backlog grows by a thousand a second."""
    steered = loop()
    limited = [FinishedBatch(float(i), 1.0, 1000, 1000, backlog=1000 * i) for i in range(1, 9)]
    decided = feed(steered, limited)
    assert decided.offered_rate == pytest.approx(2000.0)
    # 8000 came after the newest tuple of the batch: four seconds, half of its own half second, and its duration.
    assert decided.latency_seconds == pytest.approx(8000 / 2000.0 + 0.25 + 1.0)
    assert decided.budget is None
    hidden = [FinishedBatch(float(i), 1.0, 1000, 1000) for i in range(1, 9)]
    assert feed(loop(), hidden).latency_seconds == pytest.approx(1.5), "without the figure nobody would know"


def test_a_backlog_is_shed_until_batches_are_short_enough_to_overtake_the_load() -> None:
    """A read limit of 3000, P = 0.2 + 0.001 n, 2000/s arrive: batches must take less than 1.5 s to catch up."""
    steered = loop()
    now, waiting, keep, lengths = 0.0, 30_000, 1.0, []
    for _ in range(60):
        offered = min(3000, waiting)
        kept = round(keep * offered)
        seconds = 0.2 + 0.001 * kept
        batch = FinishedBatch(now, seconds, offered, kept, backlog=waiting - offered)
        decided = steered.step(batch, keep, TARGET)
        keep = 1.0 if decided is None else decided.keep
        waiting += round(2000 * seconds) - offered
        now += seconds
        lengths.append(seconds)
    assert max(lengths) <= 3.2
    assert waiting < 8000, "the backlog is gone but for what comes during a batch"


def test_a_source_that_stands_still_while_its_backlog_is_read_has_no_rate() -> None:
    steered = loop()
    batches = [FinishedBatch(float(i), 1.0, 1000, 1000, backlog=10_000 - 1000 * i) for i in range(1, 11)]
    decided = feed(steered, batches)
    assert decided.offered_rate == 0.0
    assert decided.keep == 1.0


def test_the_capacity_that_would_keep_everything_is_told_also_while_most_is_dropped() -> None:
    """P = 0.2 + 0.001 n: batches of 2 s hold 1800 tuples, and 3000 tuples/s bring 6000 of them."""
    steered, keep, start, seconds = loop(), 1.0, 0.0, 0.3
    for _ in range(30):
        offered = round(3000 * seconds)
        kept = round(keep * offered)
        seconds = 0.2 + 0.001 * kept
        decided = steered.step(FinishedBatch(start, seconds, offered, kept), keep, TARGET)
        start += seconds
        keep = 1.0 if decided is None else decided.keep
    assert decided is not None and keep < 0.5
    assert decided.capacity_needed == pytest.approx(6000 / 1800, rel=0.15)
    assert decided.batch_seconds == pytest.approx(TARGET / 1.5, rel=0.1)


def test_what_will_wait_is_forecast_with_what_the_last_batch_tells() -> None:
    """A fresh process: its second batch says 0.5 ms per tuple, its third that a tuple takes 0.2 ms at most."""
    steered = loop()
    feed(steered, [FinishedBatch(0.0, 3.9, 1000, 1000), FinishedBatch(7.5, 1.2, 2347, 2347)])
    decided = feed(steered, [FinishedBatch(8.7, 1.9, 9390, 9390)])
    running = decided.offered_rate * 1.9 * (1.9 / 9390)
    waiting = decided.control.admit / decided.keep
    assert waiting <= 1.1 * decided.offered_rate * running, "twice that by what was known before the third"
