"""The tuples that a shed has dropped, read again: `floodway.dropped("clicks", since="2 hours ago", kafka=options)`.

Whether a tuple was dropped is a pure function of what the batch journaled (`job/ledger/facts.py`), so the dropped ones
are found by reading the batch's positions again and taking those that its decision did not keep. None was copied.

Spark reads from Kafka what is still there. What retention has taken meanwhile is missing from the result; how many that
are is the batch's number of dropped tuples less those that came back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.facts import BatchFacts, FactsLog, between
from floodway.job.options.moments import moment_us
from floodway.job.shed_state import ShedFiles
from floodway.spark.shed.place import place_files
from floodway.spark.shed.recovery.fate import Rule, fate, read_rule

MOST_BATCHES = 500
"""Batches in one DataFrame: each is a scan of its own."""

Through = Callable[[DataFrame], DataFrame]
"""What the job does between its source and the shed."""


@dataclass(frozen=True)
class Recovery:
    """How to read dropped tuples again: Kafka's options as the job has them, and what the job does before the shed."""

    spark: SparkSession
    files: ShedFiles
    kafka: Mapping[str, str]
    through: Through | None = None

    def facts(self, since_us: int | None = None, until_us: int | None = None) -> list[BatchFacts]:
        """The batches that dropped something, oldest first; InputError where their tuples cannot be read again."""
        log = FactsLog(self.files.store)
        found = between(log.read(), since_us, until_us)
        lost = next((one for one in found if not one.ranges), None)
        if lost is not None:
            raise InputError(
                f"the dropped tuples of batch {lost.batch} cannot be read again: {lost.why or 'unknown source'}",
                hint="Only what was read from Kafka can be made good",
            )
        return found

    def frame(self, facts: Sequence[BatchFacts]) -> DataFrame:
        """Exactly the tuples that these batches dropped, as the shed was given them, with `_query` and `_batch`."""
        if len(facts) > MOST_BATCHES:
            raise InputError(
                f"{len(facts)} batches are too many for one DataFrame (at most {MOST_BATCHES})",
                hint="Give a shorter time by since= and until=, or use `floodway backfill`, which goes step by step",
            )
        rule = read_rule(self.files.store)
        return reduce(DataFrame.unionByName, [self._of_batch(one, rule) for one in facts])

    def counts(self, facts: Sequence[BatchFacts], frame: DataFrame) -> list[int]:
        """How many tuples of each batch came back."""
        counted = frame.groupBy("_query", "_batch").agg(fn.count(fn.lit(1)).alias("tuples")).collect()
        found = {(row["_query"], row["_batch"]): row["tuples"] for row in counted}
        return [found.get((one.query, one.batch), 0) for one in facts]

    def _of_batch(self, facts: BatchFacts, rule: Rule) -> DataFrame:
        read = self._read(facts)
        offered = read if self.through is None else self.through(read)
        gone = offered.filter(~fate(offered, rule, facts))
        return gone.withColumns({"_query": fn.lit(facts.query), "_batch": fn.lit(facts.batch)})

    def _read(self, facts: BatchFacts) -> DataFrame:
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for one in facts.ranges:
            starts.setdefault(one.topic, {})[str(one.partition)] = one.start
            ends.setdefault(one.topic, {})[str(one.partition)] = one.end
        given = {
            key: value
            for key, value in self.kafka.items()
            if key not in ("subscribe", "subscribePattern", "assign", "startingOffsets", "maxOffsetsPerTrigger")
        }
        return (
            self.spark.read.format("kafka")
            .options(**given)
            .option("assign", json.dumps({topic: [int(p) for p in parts] for topic, parts in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "false")  # what retention took is counted as lost, not an error
            .load()
        )


def dropped(
    name: str,
    *,
    kafka: Mapping[str, str],
    since: str | float | None = None,
    until: str | float | None = None,
    through: Through | None = None,
    spark: SparkSession | None = None,
    state_dir: str | None = None,
) -> DataFrame:
    """Exactly the tuples that the shed of this name has dropped, read again from Kafka.

    - `kafka`: the options of the job's source (`kafka.bootstrap.servers`, security, …);
    - `since`, `until`: moments, as text ("2026-11-16T12:00:00Z", "2 hours ago") or seconds of the epoch;
    - `through`: the function that the job applies between its source and the shed, if there is one.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InputError("there is no Spark session to read with", hint="Give spark=, or start one first")
    recovery = Recovery(session, place_files(session, name, state_dir), kafka, through)
    facts = recovery.facts(moment_us("since", since), moment_us("until", until))
    if not facts:
        raise InputError(
            f"shed {name!r} has dropped nothing in that time",
            hint="`floodway report` tells when it did; is this the state folder that the job writes to?",
        )
    return recovery.frame(facts).drop("_query", "_batch")
