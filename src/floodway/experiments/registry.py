"""Every experiment by id: its module, or an object in one. They are imported only when asked for.

Recorded traffic given by path: which of its three kinds a file is, and which results can run on that.

Counts of arrivals have one whole number a line, readings of hosts a column of numbers a host, logs of connections named
columns.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from floodway.errors import InputError, suggestion
from floodway.experiments.result import Experiment, Progress, Reproduction, Result
from floodway.simulation.arrivals import read_trace

LEAST_HOSTS = 10
CONNECTION_COLUMNS = frozenset({"ts", "source", "destination", "protocol", "service"})


@dataclass(frozen=True, slots=True)
class TraceKind:
    """What a file holds, in words, and the results that take it."""

    name: str
    results: tuple[str, ...]


ARRIVALS = TraceKind("counts of arrivals", ("buffer-fig8", "staying-fit-fig11", "staying-fit-adaptive"))
READINGS = TraceKind("readings of hosts", ("dissp-spark-fig5", "dissp-spark-fig6", "dissp-spark-fig7"))
CONNECTIONS = TraceKind("a log of connections", ("federation-fig13",))
KINDS = (ARRIVALS, READINGS, CONNECTIONS)


def kind_of(path: Path) -> TraceKind:
    """The kind of a trace; refused if it is none."""
    open_text = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8") as lines:
            head, first = lines.readline().strip(), lines.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--trace {path} cannot be read: {error}", hint="Give a CSV, or a .csv.gz") from None
    columns = [name.strip() for name in head.split(",")]
    if set(columns) >= CONNECTION_COLUMNS:
        return CONNECTIONS
    if len(columns) >= LEAST_HOSTS:
        return READINGS
    if head.isdigit() or first.isdigit():
        read_trace(path)  # refuses a line that is no count
        return ARRIVALS
    raise InputError(
        f"--trace {path} is no trace that a result can run on",
        hint="Give counts of arrivals (one whole number a line), readings (a head, and a column of numbers for each of "
        f"{LEAST_HOSTS} hosts) or connections (columns {', '.join(sorted(CONNECTION_COLUMNS))})",
    )


def fitting(path: Path, names: Collection[str]) -> tuple[str, ...]:
    """Those of the named results that run on this trace; refused if there is none."""
    kind = kind_of(path)
    found = tuple(name for name in names if name in kind.results)
    if found:
        return found
    others = {name: one.name for one in KINDS for name in one.results if name in names}
    wanted = "; ".join(f"{name} takes {what}" for name, what in others.items()) or "these take no trace"
    raise InputError(
        f"--trace {path} holds {kind.name}, and no result that was asked for takes that: {wanted}",
        hint=f"{', '.join(kind.results)} can run on it",
    )


ON_SPARK = "floodway.experiments.on_spark.examples"
WINDOWS_ON_SPARK = "floodway.experiments.on_spark.window_examples"
EXPERIMENTS: dict[str, str | tuple[str, str]] = {
    "buffer-section3": "floodway.experiments.buffer.section3",
    "buffer-fig3": "floodway.experiments.buffer.fig3",
    "buffer-fig4": "floodway.experiments.buffer.fig4",
    "buffer-fig5": "floodway.experiments.buffer.fig5",
    "buffer-fig6": "floodway.experiments.buffer.fig6",
    "buffer-fig7": "floodway.experiments.buffer.fig7",
    "buffer-fig8": "floodway.experiments.buffer.fig8",
    "staying-fit-table1": "floodway.experiments.staying_fit.table1",
    "staying-fit-fig10": "floodway.experiments.staying_fit.fig10",
    "staying-fit-fig11": "floodway.experiments.staying_fit.fig11",
    "staying-fit-fig13": "floodway.experiments.staying_fit.fig13",
    "staying-fit-fig14": "floodway.experiments.staying_fit.fig14",
    "staying-fit-fit-examples": "floodway.experiments.staying_fit.fit_examples",
    "staying-fit-split-example": "floodway.experiments.staying_fit.split_example",
    "staying-fit-propagation": "floodway.experiments.staying_fit.propagation",
    "staying-fit-adaptive": "floodway.experiments.staying_fit.adaptive",
    "staying-fit-dfit": "floodway.experiments.staying_fit.dfit_trees",
    "staying-fit-table3": "floodway.experiments.staying_fit.table3",
    "staying-fit-fig15": "floodway.experiments.staying_fit.fig15",
    "dissp-fig5": "floodway.experiments.dissp.fig5",
    "dissp-fig6": "floodway.experiments.dissp.fig6",
    "dissp-fig7": "floodway.experiments.dissp.fig7",
    "dissp-laws": "floodway.experiments.dissp.laws",
    "dissp-spark-fig5": "floodway.experiments.dissp.spark_fig5",
    "dissp-spark-fig6": "floodway.experiments.dissp.spark_fig6",
    "dissp-spark-fig7": "floodway.experiments.dissp.spark_fig7",
    "spark-split": (ON_SPARK, "SPLIT"),
    "spark-union": (ON_SPARK, "UNION"),
    "spark-join": (ON_SPARK, "JOIN"),
    "spark-window-drop": (WINDOWS_ON_SPARK, "DROP"),
    "spark-window-choice": (WINDOWS_ON_SPARK, "CHOICE"),
    "spark-bandwidth": (ON_SPARK, "BANDWIDTH"),
    "spark-memory": (ON_SPARK, "MEMORY"),
    "spark-table1": (ON_SPARK, "TABLE1"),
    "spark-dfit-tree": (ON_SPARK, "TREE"),
    "spark-dfit-diamond": (ON_SPARK, "DIAMOND"),
    "control-planes": "floodway.experiments.control_planes",
    "dfit-agents": "floodway.experiments.dfit_agents",
    "contracts-table1": "floodway.experiments.contracts.table1",
    "contracts-fig8": "floodway.experiments.contracts.fig8",
    "contracts-fig9": "floodway.experiments.contracts.fig9",
    "contracts-fig10": "floodway.experiments.contracts.fig10",
    "contracts-fig11": "floodway.experiments.contracts.fig11",
    "contracts-lemmas": "floodway.experiments.contracts.lemmas",
    "contracts-scale": "floodway.experiments.contracts.scale",
    "federation-fig13": "floodway.experiments.federation.fig13",
}

LONG = frozenset(name for name in EXPERIMENTS if "spark" in name) | {
    "control-planes",
    "dfit-agents",
    "federation-fig13",
}
"""A minute and more, most of them on Spark: run when named, or with `--long`."""


def load(identifier: str) -> Experiment:
    """Import one experiment; an unknown id is refused with the nearest known one."""
    if identifier not in EXPERIMENTS:
        raise InputError(f"no experiment is called {identifier!r}", hint=suggestion(identifier, EXPERIMENTS))
    place = EXPERIMENTS[identifier]
    if isinstance(place, str):
        return cast(Experiment, import_module(place))
    module, name = place
    return cast(Experiment, getattr(import_module(module), name))


def reproduce(identifier: str, *, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Reproduction:
    """Run one; where it cannot run (no Java, no memory, a fault) it does not hold, and says why."""
    found, started = load(identifier), time.perf_counter()
    try:
        result = found.run(seeds=seeds, trace=trace, progress=progress)
    except Exception as error:
        # One that cannot run must not cost the results of the others.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:400]
        result = Result({}, (), where="nowhere", headline=f"could not run: {reason}", failed=reason)
    return Reproduction(identifier, found.TITLE, found.CLAIM, result, time.perf_counter() - started)
