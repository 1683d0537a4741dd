"""Every benchmark by id and group. Their code is imported only when asked for, so that listing costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import cast

from floodway.errors import InputError, suggestion
from floodway.experiments.bench.result import BenchmarkRun

_HERE = "floodway.experiments.bench."
_FILTERED = "overloaded Kafka job: `shed`, a tuned filter"
_STEPPED = "batches until the keep has settled after a step"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry: `target` is `module:function`. One that needs a `broker` runs only when it, or a broker, is named."""

    id: str
    group: str
    title: str
    target: str
    broker: bool = False


_ALL = (
    Benchmark("exact-2", "planning", "exact look-up, warm HiGHS solve: 2 inputs", "planning_exact:two"),
    Benchmark("exact-4", "planning", "exact look-up, warm HiGHS solve: 4 inputs", "planning_exact:four"),
    Benchmark("exact-8", "planning", "exact look-up, warm HiGHS solve: 8 inputs", "planning_exact:eight"),
    Benchmark("exact-16", "planning", "exact look-up, warm HiGHS solve: 16 inputs", "planning_exact:sixteen"),
    Benchmark("region-map", "planning", "region map on a random walk of rates, misses included", "planning_exact:walk"),
    Benchmark("fit-lookup", "planning", "FIT look-up at 43,758 rows, plain scan", "planning_fit:lookup"),
    Benchmark("fit-build", "planning", "C-FIT with 8 inputs at 10%: time to build", "planning_fit:build"),
    Benchmark("fit-memory", "planning", "C-FIT with 8 inputs at 10%: peak memory", "planning_fit:memory"),
    Benchmark("fit-tree", "planning", "tree of 1000 nodes: time to build, error", "planning_large:tree"),
    Benchmark("lp-1000", "planning", "LP of 1000 drop locations × 100 nodes", "planning_large:lp"),
    Benchmark("source", "spark", "source at keep 1, the same segments read plainly", "spark_source:keep_all"),
    Benchmark("control-table", "spark", "the same query with and without `shed`", "spark_shed:control_table"),
    Benchmark("drop-cpu-count", "spark", "CPU of a dropped and of a counted tuple", "spark_drop_cpu:against_count"),
    Benchmark("drop-cpu-json", "spark", "CPU of a dropped and of a JSON-parsed tuple", "spark_drop_cpu:against_json"),
    Benchmark("fixed-limit", "spark", "overloaded: `shed`, hand-tuned batch limit", "spark_limit:fixed_limit"),
    Benchmark("buffer", "spark", "tuples in time: buffer, control without one", "spark_buffer:against_cob"),
    Benchmark(
        "fixed-cost", "network", "a batch of the shop's network, the same by hand", "network_fixed_cost:fixed_cost"
    ),
    Benchmark("move", "federation", "pause of a fragment that moves to a partner", "federation_move:pause"),
    Benchmark(
        "source", "kafka", "source on Kafka, Spark's own connector", "kafka_source:against_connector", broker=True
    ),
    Benchmark("kafka-1.3", "shed", f"{_FILTERED}: 1.3 × capacity", "kafka_shed:kafka_light", broker=True),
    Benchmark("kafka-2", "shed", f"{_FILTERED}: 2 × capacity", "kafka_shed:kafka_double", broker=True),
    Benchmark("kafka-4", "shed", f"{_FILTERED}: 4 × capacity", "kafka_shed:kafka_fourfold", broker=True),
    Benchmark("step-1.3", "shed", f"{_STEPPED} to 1.3 × capacity", "kafka_shed:step_light", broker=True),
    Benchmark("step-2", "shed", f"{_STEPPED} to 2 × capacity", "kafka_shed:step_double", broker=True),
    Benchmark("step-4", "shed", f"{_STEPPED} to 4 × capacity", "kafka_shed:step_fourfold", broker=True),
    Benchmark("price", "shed", "a batch of two Kafka jobs with and without `shed`", "kafka_price:price", broker=True),
    Benchmark("options", "shed", "each option of `shed`, plain `shed`", "spark_shed_options:price"),
)

BENCHMARKS: dict[str, Benchmark] = {f"{entry.group}-{entry.id}": entry for entry in _ALL}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(entry.group for entry in _ALL))


def choose(names: Iterable[str], *, kafka: bool = False) -> list[str]:
    """Ids in the order named, groups opened up, each once; all when none is named, some only with a broker.

    >>> choose(["planning-fit-tree", "planning"])[:2]
    ['planning-fit-tree', 'planning-exact-2']
    """
    chosen: list[str] = []
    for name in list(names) or [known for known, entry in BENCHMARKS.items() if kafka or not entry.broker]:
        if name in GROUPS:
            chosen += [identifier for identifier, entry in BENCHMARKS.items() if entry.group == name]
        elif name in BENCHMARKS:
            chosen.append(name)
        else:
            known = suggestion(name, [*GROUPS, *BENCHMARKS])
            raise InputError(f"no benchmark is called {name!r}", hint=f"See `floodway bench --list`. {known}")
    return list(dict.fromkeys(chosen))


def load(identifier: str, *, servers: str | None = None, conf: Mapping[str, str] | None = None) -> BenchmarkRun:
    """Import the function of one benchmark; those that need a broker are given it and the settings of the session."""
    entry = BENCHMARKS[identifier]
    module, _, function = entry.target.partition(":")
    run = getattr(import_module(_HERE + module), function)
    if not entry.broker:
        return cast(BenchmarkRun, run)
    if servers is None:
        raise InputError(
            f"the benchmark {identifier} needs a broker",
            hint="Name one with --kafka HOST:PORT; `python -m scripts.kafka_broker` in a clone starts one",
        )
    return cast(BenchmarkRun, partial(run, servers=servers, conf=conf or {}))
