"""The tuples that a stream of a network has dropped, read again from its log or topic by their journaled offsets.

A stream's drops are made at its source, before any operator: by the shedder, by shares, for their age or number, by the
buffer's adaptor and cleaner. What goes on a branch, after operators, is in no log and cannot be read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.errors import InputError
from floodway.job.ledger.backfill import Recount
from floodway.job.ledger.facts import FACTS, BatchFacts, FactsLog, between
from floodway.job.places import JobPlace, find_job
from floodway.job.store.store import Store
from floodway.network.file import load_network
from floodway.network.model import Network
from floodway.planning.windows.window_keeps import from_numbers
from floodway.spark.log.inputs import source_options
from floodway.spark.log.kafka_links import is_topic
from floodway.spark.query.dead_letters import well_formed
from floodway.spark.query.journal import query_name
from floodway.spark.query.layout import RunLayout
from floodway.spark.session.stores import open_store
from floodway.spark.source import register
from floodway.spark.source.admit import AT
from floodway.spark.source.offsets import parse_offset

NETWORK = "network.json"


@dataclass(frozen=True)
class StreamRecovery:
    """How to read the dropped tuples of one stream again; `store` is the state of the run, or of the node."""

    spark: SparkSession
    network: Network
    layout: RunLayout
    stream: str
    store: Store

    def check(self, name: str, since_us: int | None) -> None:
        """A run accounts inside the batch: its state is not compared."""

    def facts(self, since_us: int | None = None, until_us: int | None = None) -> list[BatchFacts]:
        """The batches that dropped something, oldest first; InputError where that cannot be made good."""
        found = between(FactsLog(self.store, self.stream).read(), since_us, until_us)
        readers = sorted({query_name(one.query) for one in found})
        if len(readers) > 1:
            raise InputError(
                f"stream {self.stream!r} is read by {', '.join(readers)}, and each of them dropped tuples by itself",
                hint="What one of them dropped another may have kept: process the stream's log as a whole instead",
            )
        for one in found:
            windows = parse_offset(one.offset).windows.get(self.stream)
            if windows is not None and from_numbers(windows).shape.overlap > 1:
                raise InputError(
                    f"stream {self.stream!r} drops whole windows that overlap: tuples of a dropped window that another "
                    "one needed were kept, and would be missing here",
                    hint="Give the aggregate windows that do not overlap, or process the stream's log as a whole",
                )
        return found

    def frame(self, facts: Sequence[BatchFacts]) -> DataFrame:
        """Exactly the tuples that these batches dropped."""
        register(self.spark)
        address = self.layout.stream(self.network, self.stream)
        schema = self.network.streams[self.stream].schema if is_topic(address) else None
        offsets = json.dumps([json.loads(one.offset) for one in facts])
        options = {**source_options(address, schema), "stream": self.stream, "added": "_id,_arrival"}
        return self.spark.read.format("floodway").options(**options, dropped=offsets).load()

    def counts(self, facts: Sequence[BatchFacts], frame: DataFrame) -> list[int]:
        """How many tuples of each batch came back."""
        found = {row[AT]: row["tuples"] for row in frame.groupBy(AT).agg(fn.count("*").alias("tuples")).collect()}
        return [found.get(at, 0) for at in range(len(facts))]

    def account(self, facts: BatchFacts) -> Recount | None:
        """Never asked for: a run counts inside the batch."""
        return None

    def shown(self, frame: DataFrame) -> DataFrame:
        """Without malformed records, as operators get them."""
        return well_formed(frame).drop(AT)


def network_of(job: JobPlace) -> Network | None:
    """The network that a run has left beside its ledger; None for a job of another kind."""
    path = None if job.folder is None else job.folder / NETWORK
    return load_network(path) if path is not None and path.is_file() else None


def stream_recovery(spark: SparkSession, job: str, stream: str, state_dir: str | None = None) -> StreamRecovery:
    """Of a network by its name or the folder of its state; InputError for what is none, or has no such stream."""
    found = find_job(job, open_store, state_dir)
    network = network_of(found)
    if network is None:
        raise InputError(f"{found.place} holds no run of a network", hint="Leave stream= out for a job with a shed")
    return StreamRecovery(spark, network, RunLayout(Path(found.place)), stream, stream_store(found, network, stream))


def stream_store(job: JobPlace, network: Network, stream: str | None) -> Store:
    """Where the facts of a stream are: in the state of the run, or of the node that read it."""
    if stream not in network.streams:
        raise InputError(f"{job.name} has no stream {stream!r}", hint=f"It has {', '.join(network.streams)}")
    found = [store for store in job.stores if store.names(f"{FACTS}/{stream}")]
    if len(found) > 1:
        raise InputError(
            f"stream {stream!r} of {job.name} is read by several nodes, and each of them dropped tuples by itself",
            hint="What one of them dropped another may have kept: process the stream's log as a whole instead",
        )
    return found[0] if found else job.stores[0]


def dropped_streams(job: JobPlace, network: Network) -> list[str]:
    """The streams that have dropped tuples."""
    return [at for at in network.streams if any(store.names(f"{FACTS}/{at}") for store in job.stores)]
