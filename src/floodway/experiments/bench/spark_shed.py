"""What `floodway.shed` costs a micro-batch when it drops nothing: the same query with and without it.

Batches are small, so that what comes with every batch (reading the control table, two observations) shows, and a second
size tells what comes with every tuple.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import TimedBatch, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.spark.measure.cpu import CpuMeter
from floodway.spark.shed.shed import shed

GOAL_MS = 100.0
SMALL, LARGE = 2_000, 200_000
WARM_BATCHES = 3


def control_table(*, long: bool, progress: Progress) -> BenchResult:
    """Milliseconds a batch with and without, in turns; the keep stays 1 as the target is far away."""
    turns = 1 + (6 if long else 3)
    with workbench("bench-shed") as bench:
        small = bench.log(SMALL * 18)
        large = bench.log(LARGE * 6)
        meter = CpuMeter(bench.spark)
        found: dict[tuple[int, bool], list[float]] = {}
        cpu: dict[tuple[int, bool], list[float]] = {}
        for turn in range(turns):
            for tuples, log in ((SMALL, small), (LARGE, large)):
                for protected in (turn % 2 == 0, turn % 2 != 0):
                    before = meter.cpu_seconds()
                    batches = _run(bench, log, tuples, protected=protected)
                    if turn == 0:
                        continue  # until Spark's own code is compiled, everything takes twice as long
                    spent = (meter.cpu_seconds() - before) / len(batches) * 1e3
                    cpu.setdefault((tuples, protected), []).append(spent)
                    timed = [batch.seconds * 1e3 for batch in batches[WARM_BATCHES:]]
                    found.setdefault((tuples, protected), []).extend(timed)
            progress((turn + 1) / turns)
    ours, peer = median(found[SMALL, True]), median(found[SMALL, False])
    extra, extra_large = ours - peer, median(found[LARGE, True]) - median(found[LARGE, False])
    cpu_small, cpu_large = (median(cpu[size, True]) - median(cpu[size, False]) for size in (SMALL, LARGE))
    return BenchResult(
        id="spark-control-table",
        ours=rounded(ours),
        peer=rounded(peer),
        ratio=rounded(ours / peer),
        goal=f"ours - peer <= {GOAL_MS:g} ms a micro-batch",
        holds=extra <= GOAL_MS,
        unit="ms a micro-batch",
        detail={
            "peer": "the same query without `shed`",
            "extra (ms a batch)": rounded(extra),
            f"extra at {LARGE} tuples (ms a batch)": rounded(extra_large),
            "extra (µs a tuple)": rounded((extra_large - extra) / (LARGE - SMALL) * 1e3),
            "extra CPU of tasks and Python (ms a batch)": rounded(cpu_small),
            "extra CPU of tasks and Python (µs a tuple)": rounded((cpu_large - cpu_small) / (LARGE - SMALL) * 1e3),
            "batches of each": len(found[SMALL, True]),
            "tuples a batch": SMALL,
        },
    )


def _run(bench: Workbench, log: Path, tuples: int, *, protected: bool) -> list[TimedBatch]:
    frame = bench.stream(log, maxTuplesPerBatch=str(tuples))
    if protected:
        name = bench.fresh("shed").name
        frame = frame.transform(shed(name, target_latency="1h", state_dir=str(bench.folder / "state")))
    return bench.drain(frame.selectExpr("id", "key", "value * 2 AS value", "_weight"))
