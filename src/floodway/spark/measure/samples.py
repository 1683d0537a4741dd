"""Samples of streams as the Floodway source would give them: from an embedded log, or made up by the schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from floodway.errors import FloodwayError, InputError
from floodway.network.model import Network, Stream
from floodway.spark.log import LogReader
from floodway.spark.log.kafka_links import is_topic
from floodway.spark.log.meta import META
from floodway.spark.log.profiles import DEFAULT_SCHEMA, TupleMaker
from floodway.spark.log.schema import ARRIVAL, TIMESTAMP
from floodway.spark.source.admit import output_schema
from floodway.spark.source.drops import tuple_ids

DEFAULT_RATE = 1000.0
_START_US = 1_767_225_600_000_000  # 2026-01-01: made-up samples are the same in every run


class SampleError(FloodwayError):
    """A sample that is not there or holds nothing."""

    exit_code = 2


def load_samples(
    spark: SparkSession, network: Network, *, path: Path | None, tuples: int, rng: np.random.Generator
) -> dict[str, DataFrame]:
    """A sample of every stream, at most `tuples` of the newest, each in one partition and in the order of arrival.

    `path` is a log (for a network of one stream) or a folder with a log a stream, such as the `--state` of a run.
    Without it a stream's own log is taken, and where the file names none, tuples are made up at its `max_rate`.
    """
    if tuples < 1:
        raise InputError(f"a sample of {tuples} tuples", hint="Give --tuples 1000 or more")
    samples: dict[str, DataFrame] = {}
    for name, stream in network.streams.items():
        log = _find(network, stream, path)
        table = _made_up(stream, tuples, rng) if log is None else _from_log(log, tuples)
        if table.num_rows == 0:
            raise SampleError(f"nothing to measure: the log {log} of stream {name} is empty", hint="Feed it first")
        samples[name] = spark.createDataFrame(table).coalesce(1).localCheckpoint()
    return samples


def logs_of(network: Network, path: Path | None) -> Mapping[str, Path | None]:
    """The log each stream's sample is read from; None where it is made up."""
    return {name: _find(network, stream, path) for name, stream in network.streams.items()}


def _find(network: Network, stream: Stream, path: Path | None) -> Path | None:
    if path is not None:
        return _inside(network, stream.name, path)
    if stream.log is None:
        return None
    if is_topic(stream.log):
        raise SampleError(
            f"streams.{stream.name} is on Kafka, and a sample is read from a log",
            hint="Copy some of it into an embedded log and give --sample LOG",
        )
    return Path(stream.log)


def _inside(network: Network, name: str, path: Path) -> Path:
    if not path.exists():
        raise SampleError(f"no sample at {path}", hint="Give a log, or a folder with a log for each stream")
    if (path / META).exists():
        if len(network.streams) > 1:
            raise SampleError(
                f"{path} is one log, and the network has {len(network.streams)} streams",
                hint=f"Give a folder that holds a log for each: {', '.join(network.streams)}",
            )
        return path
    for candidate in (path / name, path / "streams" / name):
        if (candidate / META).exists():
            return candidate
    raise SampleError(f"no log of stream {name} in {path}", hint=f"Put one at {path / name}, e.g. by `floodway feed`")


def _from_log(path: Path, tuples: int) -> pa.Table:
    reader = LogReader(path)
    schema = output_schema(reader.meta.schema, [])
    each = -(-tuples // reader.meta.partitions)
    earliest = reader.earliest_positions()
    parts: list[pa.RecordBatch] = []
    for partition, end in reader.end_positions().items():
        at = max(earliest[partition], end - each)
        for batch in reader.read(partition, at, end):
            ids = tuple_ids(partition, np.arange(at, at + batch.num_rows))
            parts.append(_with_source_columns(batch, ids, schema))
            at += batch.num_rows
    return pa.Table.from_batches(parts, schema=schema).sort_by(ARRIVAL).slice(0, tuples)


def _made_up(stream: Stream, tuples: int, rng: np.random.Generator) -> pa.Table:
    maker = TupleMaker(stream.schema or DEFAULT_SCHEMA, rng)
    end_us = _START_US + round(tuples / (stream.max_rate or DEFAULT_RATE) * 1e6)
    payload = maker.make(tuples, start_us=_START_US, end_us=end_us)
    times = np.linspace(_START_US, end_us, tuples, endpoint=False).astype(np.int64)
    batch = payload.append_column(ARRIVAL, pa.array(times).cast(TIMESTAMP))
    ids = tuple_ids(0, np.arange(tuples))
    return pa.Table.from_batches([_with_source_columns(batch, ids, output_schema(maker.schema, []))])


def _with_source_columns(batch: pa.RecordBatch, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    *payload, arrival = batch.columns
    columns = [*payload, pa.array(ids), arrival, pa.array(np.ones(batch.num_rows))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
