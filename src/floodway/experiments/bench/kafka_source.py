"""The Floodway source on Kafka at keep 1 against Spark's own connector, on the same topic.

Both read JSON values of about 120 bytes into the same four columns, in batches of the same size, and throw them away.
The connector fetches in the JVM and Spark's `from_json` parses; Floodway fetches with librdkafka in a Python worker and
Arrow parses. A broker is not ours to start: it is named by `floodway bench kafka --kafka HOST:PORT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from statistics import median
from uuid import uuid4

import numpy as np

from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import (
    SEED,
    WIDE,
    BenchError,
    Frame,
    Workbench,
    made_up,
    tuples_per_second,
    workbench,
)
from floodway.experiments.result import Progress
from floodway.spark.log.kafka_target import KafkaTarget
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.session.session import Session

BATCH, BATCHES, PARTITIONS = 200_000, 3, 2
_CHUNK = 20_000
_SHORT_LIVED = {"retention.ms": "3600000"}


def against_connector(*, long: bool, progress: Progress, servers: str, conf: Mapping[str, str]) -> BenchResult:
    """Tuples a second and CPU a tuple, parsed from JSON and as plain bytes."""
    topic = f"floodway-bench-{uuid4().hex[:8]}"
    feed(servers, topic, BATCH * BATCHES)
    progress(0.2)
    with workbench("bench-kafka", conf) as bench:
        seen = _compare(bench, contenders(bench.spark, servers, topic, BATCH), 7 if long else 3, progress)
    json, raw = (
        seen[f"floodway, {kind}"]["tuples/s"] / seen[f"connector, {kind}"]["tuples/s"] for kind in ("JSON", "bytes")
    )
    return BenchResult(
        id="kafka-source",
        ours=seen["floodway, JSON"]["tuples/s"],
        peer=seen["connector, JSON"]["tuples/s"],
        ratio=rounded(json),
        goal="reported: no goal was set",
        holds=True,
        unit="tuples/s of about 120 bytes",
        detail={"peer": 'format("kafka") and from_json', "ratio for plain bytes": rounded(raw), **seen},
    )


def feed(servers: str, topic: str, tuples: int) -> None:
    """A new topic with that many made-up tuples as JSON, kept by the broker for an hour."""
    target = KafkaTarget(servers, topic, partitions=PARTITIONS, topic_settings=_SHORT_LIVED)
    rng = np.random.default_rng(SEED)
    with closing(target):
        for number, start in enumerate(range(0, tuples, _CHUNK)):
            target.send(made_up(start, min(_CHUNK, tuples - start), rng, wide=True), number % PARTITIONS)


def contenders(spark: Session, servers: str, topic: str, batch: int) -> dict[str, Callable[[], Frame]]:
    """The four streams, each a function that makes it anew: connector and Floodway, parsed and as bytes."""
    columns = [part.split()[0] for part in WIDE.split(", ")]
    where = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}

    def connector() -> Frame:
        limit = {"subscribe": topic, "maxOffsetsPerTrigger": str(batch)}
        return spark.readStream.format("kafka").options(**where, **limit).load()

    def floodway(**options: str) -> Frame:
        limit = {"topic": topic, "maxTuplesPerBatch": str(batch), "added": ARRIVAL}
        return spark.readStream.format("floodway").options(**where, **limit, **options).load()

    return {
        "connector, JSON": lambda: (
            connector().selectExpr(f"from_json(cast(value AS string), '{WIDE}') AS v").select("v.*")
        ),
        "floodway, JSON": lambda: floodway(schema=WIDE).select(*columns),
        "connector, bytes": lambda: connector().select("value"),
        "floodway, bytes": lambda: floodway(valueFormat="raw").select("value"),
    }


def _compare(
    bench: Workbench, streams: Mapping[str, Callable[[], Frame]], turns: int, progress: Progress
) -> dict[str, dict[str, float]]:
    meter = CpuMeter(bench.spark)
    rates: dict[str, list[float]] = {name: [] for name in streams}
    cpu: dict[str, list[float]] = {name: [] for name in streams}
    for turn in range(turns + 1):
        for name, frame in streams.items():
            before = meter.cpu_seconds()
            done = bench.drain(frame())
            spent = meter.cpu_seconds() - before
            if sum(batch.rows for batch in done) != BATCH * BATCHES:
                raise BenchError(f"{name} read {done}", hint="All sources must read every tuple once")
            if turn > 0:  # the first turn warms up all of them
                rates[name].append(tuples_per_second(done))
                cpu[name].append(spent / (BATCH * BATCHES) * 1e6)
        progress(0.2 + 0.8 * (turn + 1) / (turns + 1))
    return {name: {"tuples/s": rounded(median(rates[name])), "CPU µs": rounded(median(cpu[name]))} for name in streams}
