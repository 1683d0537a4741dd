"""Outcomes of results that take minutes, made up: as the paper claims, and each lacking one thing.

`OUTCOMES` maps a result to the function that judges an outcome of it; without arguments the outcome is as claimed. A
`Broken` one is given other arguments, and names the beginnings of the criteria that must then not be met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from examples.intrusion_logs import SCHEMA, generated
from floodway.agent.loop.record import BatchPoint, RunReport
from floodway.agent.node.nodes_report import NodeFigures, NodesReport
from floodway.contracts.federation_file import parse_federation
from floodway.control.base import BATCH_SHARE
from floodway.experiments import control_planes, dfit_agents
from floodway.experiments.contracts import scale
from floodway.experiments.dissp import spark_fig5, spark_fig6, spark_fig7
from floodway.experiments.dissp.engine_on_spark import EngineBatch, EngineLimit, EngineRun
from floodway.experiments.dissp.spark_runs import DEFAULT, FREE, LAWS, ControlledRuns
from floodway.experiments.federation import fig13
from floodway.experiments.federation.story import Feeding, Sample, Story
from floodway.experiments.on_spark import examples
from floodway.experiments.on_spark import window_examples as on_spark_windows
from floodway.experiments.on_spark.runs import NetworkRun, NodesRun, uncoordinated
from floodway.experiments.result import Result
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.ledger import Ledger, LedgerLine
from floodway.job.status.batches import Latency
from floodway.job.status.parts import MovePart
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.simulation.federation_cases import Variant
from floodway.spark.log import LogWriter, create_log
from floodway.spark.query.layout import RunLayout

OVERHEAD = 0.3
"""What Spark takes of a batch of the planned length."""
SECOND = 1_000_000
LIMIT = EngineLimit(pairs_per_second=4_500_000.0, batch_seconds=0.5)
THREE = ("A→B", "A→B", "A→C")
LATER = {110: 10, 115: 10, 120: 10}
PUT_OUT: Mapping[str, Mapping[tuple[str, str], Mapping[int, int]]] = {
    "spark-window-drop": {("s", "q"): {105: 10, 115: 10}},
    "spark-window-choice": {("s", "q"): LATER, ("t", "p"): {115: 10}},
}
"""Windows by stream and output, by start in seconds."""


def windows(root: Path, network: Network, stream: str, output: str, counts: Mapping[int, int]) -> None:
    """The logs of a stream of a tuple a second for 40 s and of these counts by window start in seconds."""
    layout = RunLayout(root)
    stamp = pa.timestamp("us", tz="UTC")
    seconds, keys = list(range(100, 140)), [1] * 40
    for path, schema, columns in (
        (layout.stream(network, stream), "key int, event_time timestamp", {"key": keys, "event_time": seconds}),
        (
            layout.output(network, output),
            "event_time timestamp, key int, count bigint",
            {"event_time": list(counts), "key": [1] * len(counts), "count": list(counts.values())},
        ),
    ):
        create_log(path, schema)
        times = pa.array([second * SECOND for second in columns.pop("event_time")], pa.int64()).cast(stamp)
        kinds = {"key": pa.int32(), "count": pa.int64()}
        others = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
        with LogWriter(path) as writer:
            table = pa.table({"event_time": times, **others})
            writer.append(table.select([part.split()[0] for part in schema.split(", ")]))


def in_one(
    example: NetworkRun,
    places: Mapping[str, tuple[int, int]],
    root: Path,
    *,
    length: float = 1.0,
    pause: float = 0.0,
    share: float = 1.0,
    changed: Mapping[str, tuple[int, int]] | None = None,
    put_out: Mapping[tuple[str, str], Mapping[int, int]] | None = None,
    differences: Sequence[str] = (),
    **figures: Any,
) -> Result:
    """A run whose batches take `length` of what is planned, with pauses in between, in the same unit.

    `places` are tuples offered and kept, `share` is that of the optimum, `figures` are other fields of the report.
    """
    network, layout = parse_network(example.text), RunLayout(root)
    for at, (offered, kept) in {**places, **(changed or {})}.items():
        reason = "delivered" if at in network.outputs else "shedder"
        Ledger(layout.store).append([LedgerLine("q", 0, at, reason, offered, kept, offered - kept)])
    for (stream, output), given in (put_out or PUT_OUT.get(example.id, {})).items():
        windows(root, network, stream, output, given)
    planned = example.target_seconds / BATCH_SHARE
    batch, period = length * planned, (length + pause) * planned
    used = (length - OVERHEAD) / (length + pause) if example.full else 0.1
    ends = np.arange(period, example.seconds, period).tolist()
    later = [end for end in ends if end >= example.seconds / 2]
    report = RunReport(
        counts=Ledger(layout.store).fold().total,
        differences=tuple(differences),
        latency=Latency(mean=(length + pause) * planned / 2 + batch, target=example.target_seconds),
        latencies={},
        score=100.0 * share,
        optimum=100.0,
        nominal_optimum=100.0,
        load=dict.fromkeys(network.nodes, used),
        throughput={},
        rates=example.rates,
        capacity_scale=used,
        measured_seconds=later[-1] - later[0],
        mode="enforce",
        unreachable=False,
        floor_seconds=None,
        costs={},
        selectivities={},
        points=tuple(BatchPoint("A.main", end, batch, None, 2, 1, used) for end in ends),
        bandwidth={"A->B": 125e3},
        memory={"A": 0.95e6},
    )
    return example.judged(replace(report, **figures), network, layout)


def by_nodes(
    example: NodesRun,
    root: Path,
    *,
    length: float = 1.0,
    busy: float = 1.0,
    share: float = 0.97,
    gain: float = 1.6,
    differences: Sequence[str] = (),
) -> Result:
    """A run whose batches take `length` of what is planned, on nodes that are busy for a part of the time."""
    network = parse_network(example.text)
    depth = {examples.TABLE1.id: 2}.get(example.id, 3)
    batch, measured = length * example.target_seconds / depth / BATCH_SHARE, example.seconds / 2
    capacity = (length - OVERHEAD) / length
    figures = NodeFigures(
        Counts(dropped=Counter({("s1", "shedder"): 9})), capacity, capacity * busy, round(busy * measured / batch), 0
    )
    rates = {name: stream.max_rate or 0.0 for name, stream in network.streams.items()}
    score = gain * uncoordinated(network, rates, dict.fromkeys(network.nodes, capacity))
    report = NodesReport(
        control="dfit",
        nodes=dict.fromkeys(network.nodes, figures),
        links=(),
        differences=tuple(differences),
        latency=Latency(mean=length * example.target_seconds, target=example.target_seconds),
        score=score,
        optimum=score / share,
        nominal_optimum=score / share,
        throughput={},
        rates=rates,
        measured_seconds=measured,
        restarts={},
    )
    return example.judged(report, network)


def engine_run(
    target: float | None,
    law: str,
    *,
    latency: float,
    kept: int = 10_000,
    spread: float = 0.3,
    cpu: float = 0.8,
    queries: int = 200,
) -> EngineRun:
    """A run whose batches take two thirds of their latency."""
    seconds = latency / 1.5
    batches = [
        EngineBatch(end, seconds, kept, latency, spread, latency - spread, latency + spread)
        for end in np.arange(seconds, 80.0, seconds)
    ]
    return EngineRun(queries, target, law, tuple(batches), cpu, 80.0)


def fig5(root: Path, **latencies: float) -> Result:
    """Runs without control that have these latencies by number of queries (q80, …)."""
    found = {"q20": 1.0, "q80": 2.0, "q120": 20.0, "q200": 40.0, **latencies}
    runs = {queries: engine_run(None, "none", latency=found[f"q{queries}"], queries=queries) for queries in FREE}
    return spark_fig5.judged(LIMIT, runs, None)


def controlled(
    judged: Callable[[ControlledRuns, Path | None], Result], root: Path, law: str = "", **run: Any
) -> Result:
    """Runs with means at the targets, tuples kept and spread in proportion; that of a law at 4 s can be another."""
    found = {
        (target, law): engine_run(target, law, latency=target, kept=round(10_000 * target), spread=0.2 * target)
        for target in LIMIT.targets
        for law in LAWS
    }
    free = engine_run(None, "none", latency=40.0, kept=400_000)
    if law:
        found[4.0, law] = engine_run(4.0, law, **{"latency": 4.0, "kept": 40_000, "spread": 0.8, **run})
    return judged(ControlledRuns(LIMIT, free, found, {120: found[4.0, DEFAULT]}), None)


def story(
    root: Path,
    routes: Sequence[str] = (*THREE, "B→C"),
    *,
    fullest: float = 0.8,
    fed: int = 10,
    same: bool = True,
    after_fall: int = 0,
) -> Result:
    """A story of these moves, whose fullest node had this load after the last of them."""
    text = fig13._text([1, 2, 3])
    loads = ({"A": 0.5, "B": 0.5, "C": 0.1}, {"A": 0.5, "B": fullest, "C": 0.6})
    used = ({"A": 10.0, "B": 10.0, "C": 10.0}, {"A": 110.0, "B": 60.0, "C": 35.0})
    told = Story(root, text, parse_federation(text), SCHEMA)
    told.samples = [Sample(at, load, cpu, 4) for at, load, cpu in zip((100.0, 200.0), loads, used, strict=True)]
    told.feeds = {"u0": Feeding(root / "log", generated(3, seconds=100.0, rate=2.0), fed=fed)}
    moves = [MovePart(str(i), route[0], route[-1], "done", float(i), ("u0",)) for i, route in enumerate(routes)]
    ends = [fig13.PhaseEnd(phase.name, 20.0 * i, phase.moves) for i, phase in enumerate(fig13.PHASES)]
    ends[-1] = replace(ends[-1], moves=ends[-1].moves + after_fall)
    return fig13._result(told, moves, ends, [], {"u0": fig13.Unmoved(same, 7, 0.0005)}, None)


def planes(root: Path, *, error: float = 0.02, rise: float = 0.1, calm: float = 300.0) -> Result:
    """Reactions of three control planes; D-FIT's are given."""
    seconds = {control_planes.DISTRIBUTED: rise, control_planes.LAZY: 0.6, control_planes.ADVANCE: 0.5}
    bytes_a_second = {**dict.fromkeys(control_planes.KINDS, 5000.0), control_planes.DISTRIBUTED: calm}
    return control_planes.judged(
        {
            kind: [
                control_planes.PlaneFigures(
                    {change: control_planes.Reaction(after, 900, error) for change in control_planes.CHANGES},
                    10_000,
                    bytes_a_second[kind],
                )
            ]
            for kind, after in seconds.items()
        }
    )


def agents(root: Path, *, error: float = 0.01, sent: int = 6_000, changed_rows: int = 20) -> Result:
    """Agents that agree twice."""
    first = dfit_agents.Agreement(2.0, 400, sent, 90, 200, 10_000, error)
    change = replace(first, rows=changed_rows)
    return dfit_agents.judged([dfit_agents.AgentsRun(count, 5, first, change) for count in dfit_agents.AGENTS])


def sizes(root: Path, size: int = 995, **changed: Any) -> Result:
    """Federations of all sizes, one with other figures."""
    found = {"cpu_seconds": 1.0, "messages_per_node": 9.0, "excess_before": 900, "excess_after": 2, "settled": True}
    measured = {f"{variant.value} {size}": dict(found) for variant in Variant for size in scale.SIZES}
    measured[f"{Variant.FIXED.value} {size}"] |= changed
    return scale.judged(measured, 1)


Outcome = Callable[..., Result]
WINDOWS, CHOICE = "spark-window-drop", "spark-window-choice"
HALF = {"s1": (1000, 500), "s2": (1000, 1000)}
OUTCOMES: Mapping[str, Outcome] = {
    "spark-split": partial(
        in_one, examples.SPLIT, {"s": (1000, 999), "shared->bottom": (999, 400), "shared->top": (999, 999)}
    ),
    "spark-union": partial(in_one, examples.UNION, {**HALF, "q": (1500, 1500)}),
    "spark-join": partial(in_one, examples.JOIN, {"s1": (1000, 500), "s2": (1000, 500), "q": (990, 990)}),
    WINDOWS: partial(in_one, on_spark_windows.DROP, {"s": (1000, 500)}),
    CHOICE: partial(in_one, on_spark_windows.CHOICE, {"s": (1000, 1000), "t": (1000, 250)}),
    "spark-bandwidth": partial(in_one, examples.BANDWIDTH, HALF),
    "spark-memory": partial(in_one, examples.MEMORY, HALF),
    "spark-table1": partial(by_nodes, examples.TABLE1),
    "spark-dfit-tree": partial(by_nodes, examples.TREE),
    "spark-dfit-diamond": partial(by_nodes, examples.DIAMOND),
    "dissp-spark-fig5": fig5,
    "dissp-spark-fig6": partial(controlled, spark_fig6.judged),
    "dissp-spark-fig7": partial(controlled, spark_fig7.judged),
    "federation-fig13": story,
    "control-planes": planes,
    "dfit-agents": agents,
    "contracts-scale": sizes,
}


@dataclass(frozen=True, slots=True)
class Broken:
    """An outcome that lacks something, by the arguments it is made with, and the criteria that it does not meet."""

    what: str
    names: tuple[str, ...]
    fails: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)


FULL = ("spark-split", "spark-union", "spark-join")
BY_NODES = ("spark-table1", "spark-dfit-tree", "spark-dfit-diamond")
OTHER = ("spark-bandwidth", "spark-memory")
FIG6, FIG7 = ("dissp-spark-fig6",), ("dissp-spark-fig7",)
LATENCY, USED, NEAR = "the mean latency is", "the fullest node does at least", "the outputs earn at least"
ACCOUNTS = "something was dropped, and offered"
BROKEN = (
    Broken("over-shedding in the right mix", (*FULL, *BY_NODES), (LATENCY, USED), {"length": 0.5}),
    Broken("over-shedding of windows", (WINDOWS,), (USED,), {"length": 0.5}),
    Broken("too little shed", (*FULL, *BY_NODES), (LATENCY,), {"length": 1.4}),
    Broken("batches that begin late", FULL, (LATENCY, USED), {"length": 1.0, "pause": 0.8}),
    Broken("idle nodes", BY_NODES, (USED,), {"busy": 0.6}),
    Broken("no result", (*FULL, *OTHER), (LATENCY,), {"latency": Latency()}),
    Broken("results that come late", OTHER, (LATENCY,), {"length": 1.4}),
    Broken("a poor mix", (*FULL, *BY_NODES, *OTHER), (NEAR,), {"share": 0.8}),
    Broken("more than the optimum", (*FULL, *BY_NODES), (NEAR,), {"share": 1.1}),
    Broken(
        "accounts that differ",
        (*FULL, *BY_NODES, *OTHER, WINDOWS, CHOICE),
        (ACCOUNTS,),
        {"differences": ("one missing",)},
    ),
    Broken("nodes that plan alone", BY_NODES, ("and at least",), {"gain": 1.0}),
    Broken("the cheap branch dropped from", ("spark-split",), ("the dear",), {"changed": {"shared->top": (999, 500)}}),
    Broken("a union that loses", ("spark-union",), ("a union puts out",), {"changed": {"q": (1400, 1400)}}),
    Broken(
        "the cheap stream dropped from",
        ("spark-union",),
        ("the dear stream",),
        {"changed": {"s1": (1000, 1000), "s2": (1000, 500)}},
    ),
    Broken("a join that loses", ("spark-join",), ("a join puts out",), {"changed": {"q": (800, 800)}}),
    Broken("a window with a hole", (WINDOWS,), ("every window",), {"put_out": {("s", "q"): {105: 10, 115: 9}}}),
    Broken(
        "no window dropped",
        (WINDOWS,),
        ("some windows",),
        {"put_out": {("s", "q"): {95: 5, 100: 10, 105: 10, 110: 10}}},
    ),
    Broken(
        "a window with a hole in it",
        (CHOICE,),
        ("every window",),
        {"put_out": {("s", "q"): LATER, ("t", "p"): {115: 9}}},
    ),
    Broken(
        "windows of both dropped alike",
        (CHOICE,),
        ("of two equal streams", "and by that more windows"),
        {"put_out": {("s", "q"): {110: 10}, ("t", "p"): {115: 10}}},
    ),
    Broken("a link with too much", ("spark-bandwidth",), ("the link is full",), {"bandwidth": {"A->B": 215e3}}),
    Broken("a link half empty", ("spark-bandwidth",), ("the link is full",), {"bandwidth": {"A->B": 65e3}}),
    Broken("a memory with too much", ("spark-memory",), ("the memory is full",), {"memory": {"A": 1.3e6}}),
    Broken("CPU that limits", OTHER, ("and the CPU",), {"load": {"A": 0.9, "B": 0.1}}),
    Broken("the thin dropped", OTHER, ("what takes", "the wide"), {"changed": {"s2": (1000, 500)}}),
    Broken("high latency at 20 queries", ("dissp-spark-fig5",), ("up to 80 queries",), {"q20": 9.0}),
    Broken("high latency at 80 queries", ("dissp-spark-fig5",), ("up to 80 queries",), {"q80": 9.0}),
    Broken("no limit", ("dissp-spark-fig5",), ("above 100 queries",), {"q120": 5.0}),
    *(
        Broken(f"{what} by {law}", names, (f"{law}: {fails}",), {"law": law, **given})
        for law in LAWS
        for what, names, fails, given in (
            ("a mean above the target", FIG6, "the mean is within", {"latency": 4.6}),
            ("a mean below the target", FIG7, "the mean is within", {"latency": 3.5}),
            ("an idle CPU", FIG6, "the CPU is as busy", {"cpu": 0.6}),
            ("fewer tuples for more time", FIG6, "tuples kept rise", {"kept": 15_000}),
            ("less spread for more time", FIG7, "the spread rises", {"spread": 0.1}),
        )
    ),
    *(
        Broken(what, ("federation-fig13",), (fails,), given)
        for what, fails, given in (
            ("a spike moved from A", "the spike at B brings one move", {"routes": (*THREE, "A→B")}),
            ("a spike that stays", "the spike at B brings one move", {"routes": THREE}),
            ("a spike moved twice", "the spike at B brings one move", {"routes": (*THREE, "B→A", "B→C")}),
            ("another order", "load moves A→B twice, then A→C", {"routes": ("A→C", "A→B", "A→B", "B→C")}),
            ("a node over capacity", "after that move all operate within capacity", {"fullest": 1.2}),
            ("a trace that ended", "no part of the trace ended", {"fed": 10_000}),
            ("moves back and forth", "nothing moves when load falls", {"after_fall": 1}),
            ("a move that loses a window", "results equal those", {"same": False}),
        )
    ),
    Broken("plans that are not right", ("control-planes",), ("after every change",), {"error": 0.3}),
    Broken("nodes that wait", ("control-planes",), ("when rates rise",), {"rise": 2.0}),
    Broken("talkative nodes", ("control-planes",), ("and send nothing",), {"calm": 9000.0}),
    Broken("agents that plan badly", ("dfit-agents",), ("plans are within",), {"error": 0.2}),
    Broken("large tables", ("dfit-agents",), ("tables take fewer bytes",), {"sent": 20_000}),
    Broken("all rows sent again", ("dfit-agents",), ("one changed leaf",), {"changed_rows": 200}),
    Broken("no rest", ("contracts-scale",), ("every federation comes to rest",), {"settled": False}),
    Broken("slow", ("contracts-scale",), ("995 nodes take",), {"cpu_seconds": 5.0}),
    Broken("slow when large", ("contracts-scale",), ("100000 nodes",), {"size": 100_000, "cpu_seconds": 70.0}),
    Broken("excess left", ("contracts-scale",), ("at most 1%",), {"excess_after": 300}),
)
