"""Which batches a step of a backfill takes, and when it waits."""

from __future__ import annotations

from dataclasses import replace

from floodway.job.ledger.backfill import STEP_BATCHES, Batch, Live, LiveJob, next_step
from floodway.job.ledger.facts import BatchFacts
from floodway.job.status.batches import Latency
from floodway.job.status.status import Status
from floodway.spark.shed.recovery.recover import MOST_BATCHES


def test_many_batches_that_dropped_little_are_several_steps() -> None:
    facts = [BatchFacts("q", batch, 0, "enforce", 10, 9, 900_000, 7) for batch in range(3 * STEP_BATCHES + 1)]
    done: dict[Batch, int] = {}
    sizes = []
    while (step := next_step(facts, done, most_tuples=200_000)) is not None:
        sizes.append(len(step.facts))
        done |= dict.fromkeys(((one.query, one.batch) for one in step.facts), 1)
    assert sizes == [STEP_BATCHES, STEP_BATCHES, STEP_BATCHES, 1] and max(sizes) <= MOST_BATCHES
    assert len(done) == len(facts)


def look(status: Status | None, now: float) -> Live:
    return LiveJob(now, lambda: 7.0).look(status)


def test_a_job_with_long_batches_is_not_taken_for_one_that_has_ended() -> None:
    sheds = Status("clicks", "shed", "enforce", 1_000.0, latency=Latency(1.9, target=2.0), keep=0.4)
    assert look(sheds, 1_059.0).busy() == "the live job sheds: it keeps 40%"
    assert not look(sheds, 1_061.0).running and not look(None, 0.0).running
    slow = Status("clicks", "shed", "enforce", 1_000.0, latency=Latency(280.0, target=300.0), keep=0.4)
    assert look(slow, 1_599.0).busy() and not look(slow, 1_601.0).running
    observes = Status("clicks", "shed", "observe", 1_000.0, latency=Latency(1.9, target=2.0), keep=0.4)
    assert look(observes, 1_001.0).busy() == ""


def test_a_clock_that_is_set_neither_ends_a_live_job_nor_keeps_a_dead_one_alive() -> None:
    sheds = Status("clicks", "shed", "enforce", 90_000.0, latency=Latency(1.9, target=2.0), keep=0.4)
    now = [7.0]
    job = LiveJob(3_600.0, lambda: now[0])  # the clock was set back by a day since
    assert job.look(sheds).running
    now[0] += 59.0
    assert job.look(sheds).running
    now[0] += 2.0
    assert not job.look(sheds).running, "the day is not waited for"
    for set_by in (-86_400.0, 3_600.0):
        now[0] += 300.0
        assert job.look(replace(sheds, time=sheds.time + set_by)).running, "it has written its status anew"
