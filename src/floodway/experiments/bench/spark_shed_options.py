"""What each option of `floodway.shed` adds to plain `shed`: the same query on one stream, all variants in turns.

Half of the tuples are dropped, whatever a batch takes, so that options that choose by key, value or group do their work
and all variants hand on about as many tuples. Small batches show what an option adds to a batch, large ones what it
adds to a tuple. Every turn gives one figure of each kind for every option, and the spread is over turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from floodway.control.base import Controller, Decision, Observation, State
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import NARROW, BenchError, Workbench, workbench
from floodway.experiments.result import Progress
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.accuracy import Accuracy
from floodway.spark.shed.shed import shed

GOAL_MS, GOAL_US = 10.0, 0.5
SMALL, LARGE = 2_000, 200_000
SMALL_BATCHES, LARGE_BATCHES, WARM_BATCHES = 14, 6, 3
KEEP = 0.5
COLUMNS = ("id", "key", "value", "_arrival", "'s' AS topic", "0 AS partition", "id AS offset")
PLAIN = "plain"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "max_age": {"max_age": "7d", "timestamp": "_arrival"},
    "skip_when_lag": {"skip_when_lag": 1_000_000_000},
    "share_by": {"share_by": "least(key, 100)"},
    "keep_rare": {"keep_rare": 1, "rare_by": "key"},
    "accuracy": {"accuracy": Accuracy("sum(value)", by="key % 10", within=0.01, prefer="latency")},
    "utility": {"utility": "value"},
    "p95 target": {"target_latency": "p95 < 1h"},
}
"""The variants: arguments of `shed` beside its name. Nothing is too old, and nothing waits beyond the limit."""


@dataclass(frozen=True)
class Half(Controller[State]):
    """A law that keeps the same share of every batch."""

    name: ClassVar[str] = "half"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> State:
        """Nothing to remember."""
        return State()

    def update(self, state: State, observation: Observation) -> tuple[State, Decision]:
        """Half of what waits."""
        return state, Decision(KEEP * observation.waiting, 1.0, "half")


@dataclass
class VariantTimes:
    """Median milliseconds of a variant's batches, turn by turn, and the share of the tuples that it kept."""

    small: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)


def price(*, long: bool, progress: Progress) -> BenchResult:
    """Milliseconds per batch and microseconds per tuple that every option adds."""
    turns = 6 if long else 3
    seen = {name: VariantTimes() for name in OPTIONS}
    with workbench("bench-shed-options") as bench:
        sizes = {SMALL: SMALL_BATCHES, LARGE: LARGE_BATCHES}
        logs = {size: bench.log(size * batches, NARROW) for size, batches in sizes.items()}
        for turn in range(turns + 1):
            for name in rotated(list(OPTIONS), turn):
                for size, log in logs.items():
                    milliseconds, kept = run(bench, log, size, OPTIONS[name])
                    if turn == 0:
                        continue  # until Spark's own code is compiled, everything takes twice as long
                    (seen[name].small if size == SMALL else seen[name].large).append(milliseconds)
                    seen[name].kept.append(kept)
            progress((turn + 1) / (turns + 1))
    return result(seen)


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The names from another one on in every turn, so that none always runs right after the same one.

    >>> rotated(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    at = turn % len(names)
    return [*names[at:], *names[:at]]


def run(bench: Workbench, log: Path, tuples: int, options: Mapping[str, Any]) -> tuple[float, float]:
    """Milliseconds of the median batch of so many tuples, and the share of all tuples that was kept."""
    given = {"target_latency": "1h", "mode": "enforce", "controller": Half(), **options}
    protect = shed(bench.fresh("shed").name, state_dir=str(bench.folder / "state"), **given)
    stream = bench.stream(log, maxTuplesPerBatch=str(tuples)).selectExpr(*COLUMNS)
    batches = bench.drain(stream.transform(protect).selectExpr("id", "key", "value * 2 AS value", "_weight"))
    counts = Ledger(protect.files.store).fold().total
    offered = counts.offered.total()
    if len(batches) <= WARM_BATCHES or not offered:
        raise BenchError(f"only {len(batches)} batches, {offered} tuples reported", hint="See the log above")
    return median(batch.seconds * 1e3 for batch in batches[WARM_BATCHES:]), counts.kept.total() / offered


def result(seen: Mapping[str, VariantTimes]) -> BenchResult:
    """The prices of all options against plain `shed`; the one that adds most to a batch is `ours`."""
    base = seen[PLAIN]
    rows = {name: row(found, base) for name, found in seen.items() if name != PLAIN}
    worst = max(rows, key=lambda name: rows[name]["ms per batch"])
    ours, peer = median(seen[worst].small), median(base.small)
    return BenchResult(
        id="shed-options",
        ours=rounded(ours),
        peer=rounded(peer),
        ratio=rounded(ours / peer),
        goal=f"each option <= {GOAL_MS:g} ms per micro-batch and <= {GOAL_US:g} µs per tuple beside plain `shed`",
        holds=all(one["holds"] for one in rows.values()),
        unit=f"ms per micro-batch of {SMALL} tuples with {worst}, which adds most",
        detail={
            "peer": "plain `shed`, which drops half by hash",
            "plain at large batches (ms)": rounded(median(base.large)),
            "plain kept": rounded(median(base.kept)),
            "tuples per large batch": LARGE,
            "turns": len(base.small),
            **rows,
        },
    )


def row(found: VariantTimes, base: VariantTimes) -> dict[str, Any]:
    """The price of one option: the median over turns, and the least and most of them."""
    batch = [with_it - without for with_it, without in zip(found.small, base.small, strict=True)]
    large = [with_it - without for with_it, without in zip(found.large, base.large, strict=True)]
    per_tuple = [(more - less) / (LARGE - SMALL) * 1e3 for more, less in zip(large, batch, strict=True)]
    return {
        "ms per batch": rounded(median(batch), 3),
        "ms per batch, spread": [rounded(min(batch), 3), rounded(max(batch), 3)],
        "µs per tuple": rounded(median(per_tuple), 3),
        "µs per tuple, spread": [rounded(min(per_tuple), 3), rounded(max(per_tuple), 3)],
        "kept": rounded(median(found.kept), 3),
        "holds": median(batch) <= GOAL_MS and median(per_tuple) <= GOAL_US,
    }
