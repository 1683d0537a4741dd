"""Which batches a step of a backfill takes, and when it waits."""

from __future__ import annotations

from floodway.job.ledger.backfill import STEP_BATCHES, Batch, live_job, next_step
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


def test_a_job_with_long_batches_is_not_taken_for_one_that_has_ended() -> None:
    sheds = Status("clicks", "shed", "enforce", 1_000.0, latency=Latency(1.9, target=2.0), keep=0.4)
    assert live_job(sheds, 1_059.0).busy() == "the live job sheds: it keeps 40%"
    assert not live_job(sheds, 1_061.0).running and not live_job(None, 0.0).running
    slow = Status("clicks", "shed", "enforce", 1_000.0, latency=Latency(280.0, target=300.0), keep=0.4)
    assert live_job(slow, 1_599.0).busy() and not live_job(slow, 1_601.0).running
    observes = Status("clicks", "shed", "observe", 1_000.0, latency=Latency(1.9, target=2.0), keep=0.4)
    assert live_job(observes, 1_001.0).busy() == ""
