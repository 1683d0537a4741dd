"""Every benchmark by id and group. Their code is imported only when asked for, so that listing costs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import cast

from floodway.errors import InputError
from floodway.experiments.bench.result import Run
from floodway.network.suggest import did_you_mean

KAFKA = "kafka"
"""The group that needs a broker, and so runs only when it is named or a broker is."""
_HERE = "floodway.experiments.bench."


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry: `target` is `module:function`."""

    id: str
    group: str
    title: str
    target: str


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
    Benchmark("source", KAFKA, "source on Kafka, Spark's own connector", "kafka_source:against_connector"),
)

BENCHMARKS: dict[str, Benchmark] = {f"{entry.group}-{entry.id}": entry for entry in _ALL}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(entry.group for entry in _ALL))


def choose(names: Iterable[str], *, kafka: bool = False) -> list[str]:
    """Ids in the order named, groups opened up, each once; all when none is named, Kafka's only with a broker.

    >>> choose(["planning-fit-tree", "planning"])[:2]
    ['planning-fit-tree', 'planning-exact-2']
    """
    chosen: list[str] = []
    for name in list(names) or [group for group in GROUPS if kafka or group != KAFKA]:
        if name in GROUPS:
            chosen += [identifier for identifier, entry in BENCHMARKS.items() if entry.group == name]
        elif name in BENCHMARKS:
            chosen.append(name)
        else:
            remedy = did_you_mean(name, [*GROUPS, *BENCHMARKS])
            raise InputError(
                f"no benchmark is called {name!r}; {remedy}", hint="Run `floodway bench --list` to see all ids"
            )
    return list(dict.fromkeys(chosen))


def load(identifier: str, *, servers: str | None = None, conf: Mapping[str, str] | None = None) -> Run:
    """Import the function of one benchmark; those of Kafka are told the broker and the settings of the session."""
    entry = BENCHMARKS[identifier]
    module, _, function = entry.target.partition(":")
    run = getattr(import_module(_HERE + module), function)
    return cast(Run, partial(run, servers=servers, conf=conf or {}) if entry.group == KAFKA else run)
