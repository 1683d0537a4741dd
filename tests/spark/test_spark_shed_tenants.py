"""A hundred tenants at three times the capacity: the real controller on real Spark, with tuples that come by the clock.

The sink takes so long for every tuple that a third of them fill its time. A machine that is slow or held up keeps less:
judged are batches that kept more than the light tenants send together.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from floodway.job.ledger.facts import BatchFacts
from floodway.job.ledger.ledger import Ledger
from floodway.json_text import load_json
from floodway.spark.shed.keys.key_columns import key_hash
from floodway.spark.shed.shed import shed
from floodway.units import PPM
from tests.oracles.max_min import max_min_shares
from tests.patience import wait_until

pytestmark = pytest.mark.spark

RATE, OVERLOAD, TENANTS = 8_000, 3.0, 100
EVENLY = "pmod(value * 0.6180339887498949D, 1.0D)"
"""Numbers between 0 and 1, as even as they can be: every second of the stream has the same tenants."""

NOISY = f"int(if({EVENLY} < 0.9, 0, 1 + ({EVENLY} - 0.9) * {10 * (TENANTS - 1)}))"
"""One tenant sends nine tuples of ten. The other 99 share the tenth evenly."""

MANY_SIZES = f"int(pow({TENANTS + 1}, {EVENLY})) - 1"
"""Tenant k sends in proportion to log(1 + 1 / (k + 1)): about as 1 / k."""

LEARNT = 3
"""Batches that dropped before shares are judged: by then the controller knows what a tuple costs."""


@dataclass
class Job:
    """The query of a user, whose sink takes its time for every tuple."""

    spark: SparkSession
    folder: Path
    tenant: str
    kept: dict[int, Counter[int]] = field(default_factory=dict)
    """Tuples by tenant that the sink was given, by batch."""
    ended: Event = field(default_factory=Event)

    def run(self, batches: int) -> None:
        """Until there are so many batches to judge."""
        source = self.spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
        self.shed = shed(
            "tenants", target_latency="4s", mode="enforce", share_by="tenant", identity="value",
            state_dir=str(self.folder / "state"),
        )  # fmt: skip
        tenants = source.withColumn("tenant", fn.expr(self.tenant)).transform(self.shed)
        writer = tenants.writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            wait_until(lambda: len(self.judged()) >= batches, told=lambda: self.keeps)
        finally:
            self.ended.set()
            query.stop()

    def _take(self, batch: DataFrame, number: int) -> None:
        if self.ended.is_set():  # Spark is not to be stopped in the middle of an action
            return
        begun = time.monotonic()
        found = Counter({row.tenant: row["count"] for row in batch.groupBy("tenant").count().collect()})
        time.sleep(max(0.0, begun + found.total() * OVERLOAD / RATE - time.monotonic()))
        self.kept[number] = found

    def judged(self) -> list[BatchFacts]:
        """The batches that dropped, and could keep all light tenants whole, once the controller has learnt."""
        dropping = [facts for facts in self.shed.loop.facts.read() if facts.batch in self.kept][LEARNT:]
        return [facts for facts in dropping if 0.15 * PPM < facts.keep_ppm < 0.9 * PPM]

    @property
    def keeps(self) -> list[int]:
        return [facts.keep_ppm for facts in self.shed.loop.facts.read()]

    def offered(self, batch: int) -> Counter[int]:
        """Tuples by tenant; Spark's source of a rate journals the second that a batch goes up to."""
        first, end = (self._second(number) * RATE for number in (batch - 1, batch))
        values = self.spark.range(first, end).withColumnRenamed("id", "value")
        rows = values.groupBy(fn.expr(self.tenant).alias("tenant")).count().collect()
        return Counter({row.tenant: row["count"] for row in rows})

    def _second(self, batch: int) -> int:
        journaled = (self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        return int(load_json(journaled[2]))

    def tenant_keeps(self, facts: BatchFacts) -> dict[int, float]:
        """The part of every tenant's tuples that the batch was to keep."""
        assert facts.others_ppm is not None
        quotas, rows = dict(facts.quotas), self.spark.range(TENANTS).select(fn.col("id").cast("int").alias("tenant"))
        hashes = rows.select("tenant", key_hash(fn.col("tenant")).alias("hash")).collect()
        return {row.tenant: quotas.get(row.hash, facts.others_ppm) / PPM for row in hashes}


@pytest.mark.parametrize(
    ("tenant", "batches"),
    [
        pytest.param(NOISY, 3, id="noisy"),
        pytest.param(NOISY, 20, id="noisy-long", marks=pytest.mark.slow),
        pytest.param(MANY_SIZES, 20, id="many-sizes", marks=pytest.mark.slow),
    ],
)
def test_the_real_controller_shares_fairly(spark: SparkSession, tmp_path: Path, tenant: str, batches: int) -> None:
    job = Job(spark, tmp_path, tenant)
    job.run(batches)
    shared, fair = defaultdict[int, float](float), defaultdict[int, float](float)
    for facts in job.judged():
        offered, kept, keeps = job.offered(facts.batch), job.kept[facts.batch], job.tenant_keeps(facts)
        assert (facts.offered, facts.kept) == (offered.total(), kept.total())
        if tenant == NOISY:
            assert all(kept[key] >= 0.99 * offered[key] for key in range(1, TENANTS))
        # By hash: within six standard deviations, as there are many to look at.
        spread = {key: 6 * (offered[key] * keep * (1 - keep)) ** 0.5 for key, keep in keeps.items()}
        assert all(abs(kept[key] - keep * offered[key]) <= spread[key] + 1 for key, keep in keeps.items())
        wanted = {key: keep * offered[key] for key, keep in keeps.items()}
        for key, share in max_min_shares(sum(wanted.values()), offered, {}).items():
            shared[key], fair[key] = shared[key] + wanted[key], fair[key] + share
    assert shared == pytest.approx(fair, rel=0.02)
    assert Ledger(job.shed.files.store).fold().differences() == []
