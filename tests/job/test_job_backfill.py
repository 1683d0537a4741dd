"""Which batches a step of a backfill takes."""

from __future__ import annotations

from floodway.job.ledger.backfill import STEP_BATCHES, Batch, next_step
from floodway.job.ledger.facts import BatchFacts
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
