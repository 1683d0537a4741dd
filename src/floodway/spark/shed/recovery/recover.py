"""The tuples that a shed has dropped, read again: `floodway.dropped("clicks", since="2 hours ago", kafka=options)`.

Whether a tuple was dropped is a pure function of what the batch journaled (`job/ledger/facts.py`), so the dropped ones
are found by reading the batch's positions again and taking those that its decision did not keep. None was copied.

Spark reads from Kafka, or from an embedded log, what is still there. What retention has taken meanwhile is missing from
the result; how many that are is the batch's number of dropped tuples less those that came back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.backfill import Recount
from floodway.job.ledger.facts import BatchFacts, FactsLog, Rule, between, read_rule
from floodway.job.ledger.ledger_line import Reason
from floodway.job.options.values import moment_us
from floodway.job.places import ShedFiles
from floodway.job.store.store import Store
from floodway.spark.session.stores import open_store, place_files
from floodway.spark.shed.recovery.fate import fate, missing, reasons
from floodway.spark.shed.recovery.streams import stream_recovery
from floodway.spark.shed.state_copies import check_restored
from floodway.spark.source import register
from floodway.spark.source.offsets import BatchOffset

MOST_BATCHES = 500
"""Batches in one DataFrame: each is a scan of its own."""

LIVE_KAFKA = ("subscribe", "subscribePattern", "assign", "startingOffsets", "maxOffsetsPerTrigger")
LIVE_SOURCE = ("decision", "gate", "notes", "startingoffsets", "maxtuplesperbatch", "onloss")
"""Options that say how a running job reads: a batch is read again by its own positions."""

DROPPED = "_dropped"
WINDOWS = "_windows"

Through = Callable[[DataFrame], DataFrame]
"""What the job does between its source and the shed."""


@dataclass(frozen=True)
class Recovery:
    """How to read dropped tuples again: the options of Kafka's source or of a Floodway source as the job has them, and
    what the job does before the shed.
    """

    spark: SparkSession
    files: ShedFiles
    kafka: Mapping[str, str]
    through: Through | None = None
    source: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The state of the shed."""
        return self.files.store

    def shown(self, frame: DataFrame) -> DataFrame:
        """What a user's function is given; with Window Drop also the tuples that were kept for another window."""
        return frame.drop("_query", "_batch", DROPPED)

    def check(self, name: str, since_us: int | None) -> None:
        """Refuse a state that was restored from a copy: it does not know what was made good since."""
        check_restored(self.files, name, since_us, lambda place: open_store(place, self.spark))

    def facts(self, since_us: int | None = None, until_us: int | None = None) -> list[BatchFacts]:
        """The batches of which something may be missing, oldest first; InputError where none can be read again."""
        read_rule(self.store)  # a shed that never ran is refused
        found = between(FactsLog(self.store).read(), since_us, until_us)
        if found and not any(one.readable for one in found):
            raise InputError(
                f"what was dropped cannot be read again: {found[0].why or 'unknown source'}",
                hint="Only what was read from Kafka or from a Floodway source can be processed later",
            )
        kinds = {one.floodway for facts in found for one in facts.ranges}
        if (True in kinds and not self.source) or (False in kinds and not self.kafka):
            option, example = ("source", "path") if True in kinds else ("kafka", "kafka.bootstrap.servers")
            raise InputError(
                f"{option}= does not say where the dropped tuples are read again",
                hint=f"Give the options of the job's source, such as {example!r}",
            )
        return found

    def frame(self, facts: Sequence[BatchFacts]) -> DataFrame:
        """The tuples that these batches dropped, as the shed was given them, with `_query` and `_batch`.

        With Window Drop also those that were kept for one window and are missing from another (`_dropped` tells them
        apart); `_windows` are the windows of a tuple that the job did not emit.
        """
        if len(facts) > MOST_BATCHES:
            raise InputError(
                f"{len(facts)} batches are too many for one DataFrame (at most {MOST_BATCHES})",
                hint="Give a shorter time by since= and until=, or use `floodway backfill`, which goes step by step",
            )
        rule = read_rule(self.files.store)
        return reduce(DataFrame.unionByName, [self._of_batch(one, rule) for one in facts])

    def counts(self, facts: Sequence[BatchFacts], frame: DataFrame) -> list[int]:
        """How many dropped tuples of each batch came back."""
        counted = frame.groupBy("_query", "_batch").agg(fn.count_if(DROPPED).alias("tuples")).collect()
        found = {(row["_query"], row["_batch"]): row["tuples"] for row in counted}
        return [found.get((one.query, one.batch), 0) for one in facts]

    def account(self, facts: BatchFacts) -> Recount | None:
        """What a batch that was not counted was offered and why it dropped; None if not all of it is there still."""
        read = self._read(facts)
        if read.count() < facts.size:
            return None
        offered, rule = self._offered(read), read_rule(self.files.store)
        gone = ~fate(offered, rule, facts)
        columns = {reason: fn.count_if(gone & which) for reason, which in reasons(rule, facts).items()}
        row = offered.agg(
            fn.count(fn.lit(1)).alias("offered"),
            fn.count_if(gone).alias("dropped"),
            *[column.alias(reason.value) for reason, column in columns.items()],
        ).first()
        assert row is not None  # an aggregate without groups has one row
        others = {reason: int(row[reason.value]) for reason in columns}
        return Recount(row["offered"], {Reason.SHEDDER: row["dropped"] - sum(others.values()), **others})

    def _of_batch(self, facts: BatchFacts, rule: Rule) -> DataFrame:
        offered = self._offered(self._read(facts))
        windows = missing(rule, facts)
        added = {"_query": fn.lit(facts.query), "_batch": fn.lit(facts.batch), DROPPED: ~fate(offered, rule, facts)}
        if windows is None:
            return offered.withColumns(added).filter(DROPPED)
        marked = offered.withColumns({**added, WINDOWS: windows})
        return marked.filter(fn.col(DROPPED) | (fn.size(WINDOWS) > 0))

    def _offered(self, read: DataFrame) -> DataFrame:
        return read if self.through is None else self.through(read)

    def _read(self, facts: BatchFacts) -> DataFrame:
        if any(one.floodway for one in facts.ranges):
            return self._read_source(facts)
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for one in facts.ranges:
            starts.setdefault(one.topic, {})[str(one.partition)] = one.start
            ends.setdefault(one.topic, {})[str(one.partition)] = one.end
        given = {key: value for key, value in self.kafka.items() if key not in LIVE_KAFKA}
        return (
            self.spark.read.format("kafka")
            .options(**given)
            .option("assign", json.dumps({topic: [int(p) for p in parts] for topic, parts in starts.items()}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "false")  # what retention took is counted as lost, not an error
            .load()
        )

    def _read_source(self, facts: BatchFacts) -> DataFrame:
        starts = {one.partition: one.start for one in facts.ranges}
        offset = BatchOffset(facts.ranges[0].topic, starts, {one.partition: one.end for one in facts.ranges})
        given = {key: value for key, value in self.source.items() if key.lower() not in LIVE_SOURCE}
        register(self.spark)
        frame = self.spark.read.format("floodway").options(**given, onLoss="skip")
        return frame.option("endingOffsets", json.dumps(offset.to_json())).load()


def dropped(
    name: str,
    *,
    kafka: Mapping[str, str] | None = None,
    source: Mapping[str, str] | None = None,
    stream: str | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
    through: Through | None = None,
    spark: SparkSession | None = None,
    state_dir: str | None = None,
) -> DataFrame:
    """Exactly the tuples that the shed of this name has dropped, read again from its source; or a stream of a network.

    - `kafka`: the options of the shed's source where that is Kafka (`kafka.bootstrap.servers`, security, …);
    - `source`: the same where it is Floodway's, `format("floodway")`: `{"path": "clicks.log"}`;
    - `stream`: of a network, whose name or state folder is `name`; it is read again from its log or topic;
    - `since`, `until`: moments, as text ("2026-11-16T12:00:00Z", "2 hours ago") or seconds of the epoch;
    - `through`: the function that the job applies between its source and the shed, if there is one.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InputError("there is no Spark session to read with", hint="Give spark=, or start one first")
    since_us, until_us = moment_us("since", since), moment_us("until", until)
    if stream is not None:
        streams = stream_recovery(session, name, stream, state_dir)
        facts = streams.facts(since_us, until_us)
        return streams.shown(streams.frame(_some(facts, f"stream {stream!r} of {name}")))
    recovery = Recovery(session, place_files(session, name, state_dir), kafka or {}, through, source or {})
    facts = _some(recovery.facts(since_us, until_us), f"shed {name!r}")
    lost = next((one for one in facts if not one.readable), None)
    if lost is not None:
        raise InputError(
            f"the dropped tuples of batch {lost.batch} cannot be read again: {lost.why}",
            hint="Leave that time out by since= or until=",
        )
    frame = recovery.frame(facts)
    return frame.filter(DROPPED).drop("_query", "_batch", DROPPED, WINDOWS)


def _some(facts: list[BatchFacts], who: str) -> list[BatchFacts]:
    if facts:
        return facts
    raise InputError(
        f"{who} has dropped nothing in that time",
        hint="`floodway report` tells when it did; is this the state folder that the job writes to?",
    )
