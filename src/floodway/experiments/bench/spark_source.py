"""The Floodway source at keep 1 against a source that reads the same segments and does nothing else.

The peer is a Python stream source as short as one can be: it lists segment files once, cuts batches of the same size by
counting, and yields the stored record batches from memory-mapped Arrow files. No decision, no identity, no weight, no
check of what a segment says about itself. The difference is what Floodway costs when it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from typing_extensions import override

from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import (
    NARROW,
    WIDE,
    BenchError,
    Workbench,
    tuples_per_second,
    workbench,
)
from floodway.experiments.result import Progress
from floodway.spark.log.schema import ARRIVAL
from floodway.spark.log.segments import SegmentName, parse_name
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.source.offsets import Admission
from floodway.spark.source.options import ID, WEIGHT, parse_options
from floodway.spark.source.readers import FloodwaySource, FloodwayStreamReader, Slice

PLAIN = "floodway-bench-plain"
SAME = {"added": ARRIVAL}
"""The option for the columns that the peer has: a query without Floodway has no `_id` and no `_weight`."""
GOAL = 0.97
_BATCHES = 3


class PlainReader(FloodwayStreamReader):
    """Inherits Spark's interface and the options; everything that is Floodway's is left out."""

    @override
    def initialOffset(self) -> dict[str, Any]:
        return {"pos": 0}

    @override
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = max(name.end for name, _ in self._files())
        most = getattr(limit, "max_rows", None)
        return {"pos": end if most is None else min(end, start["pos"] + most)}

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """The log does not grow while it is measured."""

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        first, last, parts = start["pos"], end["pos"], self.options.splits
        cuts = [first + (last - first) * i // parts for i in range(parts + 1)]
        return [Slice([(0, a, b)], Admission(), {}) for a, b in pairwise(cuts) if b > a]

    @override
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for _, start, end in partition.ranges:
            for name, path in self._files():
                if name.end <= start or name.base >= end:
                    continue
                with pa.memory_map(str(path)) as mapped:
                    at = name.base
                    file = pyarrow.ipc.open_file(mapped)
                    for number in range(file.num_record_batches):
                        batch = file.get_batch(number)
                        low, high = max(start - at, 0), min(end - at, batch.num_rows)
                        if high > low:
                            yield pa.RecordBatch.from_arrays(
                                batch.slice(low, high - low).columns, schema=self.arrow_schema
                            )
                        at += batch.num_rows

    def _files(self) -> list[tuple[SegmentName, Path]]:
        folders = [folder for folder in Path(str(self.options.path)).iterdir() if folder.is_dir()]
        named = [(parse_name(path.name), path) for folder in folders for path in folder.iterdir()]
        return sorted((name, path) for name, path in named if name is not None)


class PlainSource(FloodwaySource):
    """`format("floodway-bench-plain")`: the stored columns and nothing else."""

    @classmethod
    @override
    def name(cls) -> str:
        return PLAIN

    @override
    def schema(self) -> Any:
        full = super().schema()
        return type(full)([field for field in full.fields if field.name not in (ID, WEIGHT)])

    @override
    def streamReader(self, schema: Any) -> PlainReader:
        return PlainReader(parse_options(self.options), schema)


def keep_all(*, long: bool, progress: Progress) -> BenchResult:
    """Tuples a second through the source into a sink that discards, at 100 bytes a tuple and at 20."""
    turns = 9 if long else 5
    with workbench("bench-source") as bench:
        bench.spark.dataSource.register(PlainSource)
        wide = _compare(bench, WIDE, 800_000, turns, lambda part: progress(0.6 * part))
        narrow = _compare(bench, NARROW, 2_000_000, turns, lambda part: progress(0.6 + 0.4 * part))
    return BenchResult(
        id="spark-source",
        ours=rounded(wide["same columns"]["tuples/s"]),
        peer=rounded(wide["peer"]["tuples/s"]),
        ratio=rounded(wide["same columns"]["ratio"]),
        goal=f"ours / peer >= {GOAL:g}",
        holds=wide["same columns"]["ratio"] >= GOAL,
        unit="tuples/s of about 110 bytes",
        detail={
            "peer": "a minimal Python source that yields the stored record batches",
            "with `_id` and `_weight`": "also sent, 16 bytes a tuple; the rest as the peer",
            "110 bytes a tuple": wide,
            "20 bytes a tuple": narrow,
        },
    )


def _compare(
    bench: Workbench, schema: str, batch_tuples: int, turns: int, progress: Progress
) -> dict[str, dict[str, float]]:
    """Median throughput and CPU of the three, and the median over turns of the ratio to the peer in the same turn."""
    log = bench.log(batch_tuples * _BATCHES, schema)
    meter = CpuMeter(bench.spark)
    columns = [part.split()[0] for part in schema.split(", ")] + [ARRIVAL]
    contenders = {"peer": (PLAIN, {}), "same columns": ("floodway", SAME), "with `_id` and `_weight`": ("floodway", {})}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        order = list(contenders)
        for name in order[turn % 3 :] + order[: turn % 3]:
            source, options = contenders[name]
            frame = bench.stream(log, source, maxTuplesPerBatch=str(batch_tuples), **options).select(*columns)
            before = meter.cpu_seconds()
            done = bench.drain(frame)
            spent = meter.cpu_seconds() - before
            if sum(batch.rows for batch in done) != batch_tuples * _BATCHES:
                raise BenchError(f"{name} read {done}", hint="All sources must read every tuple once")
            if turn > 0:  # the first turn warms up all of them
                rates[name].append(tuples_per_second(done))
                cpu[name].append(spent / (batch_tuples * _BATCHES) * 1e6)
        progress((turn + 1) / (turns + 1))
    return {
        name: {
            "tuples/s": rounded(median(rates[name])),
            "ratio": rounded(median(ours / peer for ours, peer in zip(rates[name], rates["peer"], strict=True))),
            "CPU µs": rounded(median(cpu[name])),
        }
        for name in contenders
    }
