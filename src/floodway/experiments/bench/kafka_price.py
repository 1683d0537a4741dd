"""What `floodway.shed` adds to a micro-batch when it drops nothing: the same job with and without, in turns.

Two jobs on real Kafka at 5000 records a second: a windowed count, and JSON with explode and windows. Warm: both in one
process, taking turns. Fresh (`--long`): each in a process of its own, during its first minute, as after a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from uuid import uuid4

from floodway.experiments.bench.kafka_job import KafkaBatch, job, plain, run, windowed_count
from floodway.experiments.bench.kafka_load import Sender, create_topic
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import Frame, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.spark.shed.shed import shed

GOAL_MS = 20.0
RATE = 5000.0
TURN_SECONDS, FRESH_SECONDS = 10.0, 60.0
TURNS = 3
WARM_BATCHES = 10
"""A new query's first batches are left out: compiling its code is no price of a job that stays."""
LEAST_BATCHES = WARM_BATCHES + 10
LATEST = {"startingOffsets": "latest"}
JOBS: Mapping[str, Callable[[Workbench, str, str, Callable[[Frame], Frame], Mapping[str, str]], Frame]] = {
    "windowed count": windowed_count,
    "JSON and windows": job,
}


def price(*, long: bool, progress: Progress, servers: str, conf: Mapping[str, str]) -> BenchResult:
    """Milliseconds of the median batch with and without."""
    topic = f"floodway-price-{uuid4().hex[:8]}"
    create_topic(servers, topic)
    with Sender(servers, topic) as load:
        load.rate = RATE
        found = _warm(servers, topic, conf, load, 2 * TURNS if long else TURNS, progress)
        if long:
            for name in JOBS:
                with_it, without = (_fresh(servers, topic, conf, name, protected) for protected in (True, False))
                found[f"{name}, first minute of a fresh process"] = _row(with_it, without)
    worst = max((row for name, row in found.items() if "fresh" not in name), key=lambda row: row["extra (ms)"])
    return BenchResult(
        id="shed-price",
        ours=worst["with (ms)"],
        peer=worst["without (ms)"],
        ratio=rounded(worst["with (ms)"] / worst["without (ms)"]),
        goal=f"ours - peer <= {GOAL_MS:g} ms a micro-batch, warm, in both jobs",
        holds=worst["extra (ms)"] <= GOAL_MS,
        unit="ms a micro-batch, the job in which it costs more",
        detail={"peer": "the same job without `shed`", **found, "records/s": RATE},
    )


def _warm(
    servers: str, topic: str, conf: Mapping[str, str], load: Sender, turns: int, progress: Progress
) -> dict[str, dict[str, float]]:
    seen: dict[tuple[str, bool], list[float]] = {}
    with workbench("bench-price", conf) as work:
        for turn in range(turns + 1):
            for name in JOBS:
                for protected in (turn % 2 == 0, turn % 2 != 0):
                    ran = _turn(work, servers, topic, load, name, protected, TURN_SECONDS)
                    if turn > 0:  # until Spark's own code is compiled, everything takes twice as long
                        seen.setdefault((name, protected), []).extend(_lengths(ran))
            progress(0.9 * (turn + 1) / (turns + 1))
    return {name: _row(seen[name, True], seen[name, False]) for name in JOBS}


def _fresh(servers: str, topic: str, conf: Mapping[str, str], name: str, protected: bool) -> list[float]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_first_minute, servers, topic, dict(conf), name, protected).result()


def _first_minute(servers: str, topic: str, conf: Mapping[str, str], name: str, protected: bool) -> list[float]:
    with workbench("bench-price-fresh", conf) as work, Sender(servers, topic) as idle:
        ran = _turn(work, servers, topic, idle, name, protected, FRESH_SECONDS)
        return [batch.seconds * 1e3 for batch in ran[1:]]


def _turn(
    work: Workbench, servers: str, topic: str, load: Sender, name: str, protected: bool, seconds: float
) -> list[KafkaBatch]:
    protect: Callable[[Frame], Frame] = plain
    if protected:
        state = str(work.folder / "state")
        protect = shed(work.fresh("shed").name, target_latency="1h", mode="enforce", state_dir=state)
    return run(
        work,
        JOBS[name](work, servers, topic, protect, LATEST),
        load,
        seconds,
        lambda elapsed: None,
        least=LEAST_BATCHES,
    )


def _lengths(ran: list[KafkaBatch]) -> list[float]:
    return [batch.seconds * 1e3 for batch in ran[WARM_BATCHES:]]


def _row(with_it: list[float], without: list[float]) -> dict[str, float]:
    ours, peer = median(with_it), median(without)
    return {
        "with (ms)": rounded(ours),
        "without (ms)": rounded(peer),
        "extra (ms)": rounded(ours - peer, 3),
        "batches": len(with_it),
    }
