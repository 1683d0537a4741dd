"""The examples of the Borealis papers that run on Spark, with costs and rates that two cores can bear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from floodway.agent.loop.record import RunReport
from floodway.experiments.on_spark.example_operators import distinct, ms_2, ms_10, ms_20, ms_30, ms_60, widened
from floodway.experiments.on_spark.runs import NetworkRun, NodesRun
from floodway.experiments.result import Claim, Criterion
from floodway.job.ledger.ledger import Ledger, Reason
from floodway.network.model import Network
from floodway.spark.query.layout import RunLayout

LONG_PAPER = "staying-fit"


def named(function: Callable[..., Any]) -> str:
    """A function as a network file names it."""
    return f"{function.__module__}:{function.__name__}"


def kept(layout: RunLayout, at: str) -> int:
    """Tuples that passed a place, or came out of an output."""
    lines = Ledger(layout.store).lines()
    return sum(line.kept for line in lines if line.at == at and line.reason in (Reason.SHEDDER, Reason.DELIVERED))


def offered(layout: RunLayout, at: str) -> int:
    """Tuples that came to a place."""
    lines = Ledger(layout.store).lines()
    return sum(line.kept + line.dropped for line in lines if line.at == at and line.reason == Reason.SHEDDER)


def _dear_branch_first(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    dear, cheap = (kept(layout, at) / max(kept(layout, "s"), 1) for at in ("shared->bottom", "shared->top"))
    return [
        Criterion(
            "the dear branch is dropped from, the cheap one is not",
            dear < 0.9 and cheap > 0.99,
            f"{dear:.0%} of the tuples go on to the dear one, {cheap:.0%} to the cheap one",
        )
    ]


SPLIT = NetworkRun(
    id="spark-split",
    TITLE="A split on Spark: the expensive branch is dropped from before the input",
    CLAIM=Claim(LONG_PAPER, "Section 6.2.2, Figure 7", "a local plan drops 60% of the dear branch at a rate of 0.2"),
    text="""
version: 1
name: spark-split
streams: {s: {max_rate: 1000}}
nodes: {A: {cpu: 1.0}}
operators:
  shared: {node: A, from: s, kind: delay, cost: 0.001}
  top: {node: A, from: shared, kind: delay, cost: 0.002}
  bottom: {node: A, from: shared, kind: delay, cost: 0.005}
outputs: {cheap: {from: top}, dear: {from: bottom}}
""",
    rates={"s": 150.0},
    check=_dear_branch_first,
    seconds=120.0,
    notes=(
        "A thousandth of the paper's costs, and 150 tuples/s: more than half of a core goes to Spark, so that the "
        "paper's 200 would ask for more than dropping the branch can give.",
    ),
)


def _all_that_was_kept(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    first, second, out = (kept(layout, at) for at in ("s1", "s2", "q"))
    rates = {name: kept(layout, name) / max(offered(layout, name), 1) for name in ("s1", "s2")}
    return [
        Criterion("a union puts out all that was kept of both", out == first + second, f"{out} of {first} + {second}"),
        Criterion(
            "the dear stream is dropped from, the cheap one is not",
            rates["s1"] < 0.9 < rates["s2"],
            ", ".join(f"{rate:.0%} of {name} kept" for name, rate in rates.items()),
        ),
    ]


UNION = NetworkRun(
    id="spark-union",
    TITLE="A union on Spark under overload",
    CLAIM=Claim(
        LONG_PAPER, "Section 3.3", "a union puts out the sum of its inputs' rates; the linear program plans it"
    ),
    text="""
version: 1
name: spark-union
streams: {s1: {max_rate: 400}, s2: {max_rate: 400}}
nodes: {A: {cpu: 1.0}}
operators:
  o1: {node: A, from: s1, kind: delay, cost: 0.0035}
  o2: {node: A, from: s2, kind: delay, cost: 0.0005}
  both: {node: A, from: [o1, o2], kind: union, cost: 0.0001}
outputs: {q: {from: both}}
""",
    rates={"s1": 400.0, "s2": 400.0},
    check=_all_that_was_kept,
)


def _by_the_formula(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    expected = 0.25 * 4 * (kept(layout, "s1") + kept(layout, "s2"))
    out = kept(layout, "q")
    return [
        Criterion(
            "a join puts out s·(r1·w2 + r2·w1) of what was kept, within 10%",
            abs(out / max(expected, 1.0) - 1.0) < 0.1,
            f"{out}, by the formula {expected:.0f}",
        )
    ]


JOIN = NetworkRun(
    id="spark-join",
    TITLE="A join by count windows on Spark under overload",
    CLAIM=Claim(LONG_PAPER, "Section 3.3", "a join with count windows w1, w2 puts out s·(r1·w2 + r2·w1)"),
    text="""
version: 1
name: spark-join
streams: {s1: {max_rate: 400}, s2: {max_rate: 400}}
nodes: {A: {cpu: 1.0}}
operators:
  o1: {node: A, from: s1, kind: delay, cost: 0.0015}
  o2: {node: A, from: s2, kind: delay, cost: 0.0015}
  met: {node: A, from: [o1, o2], kind: join, windows: [4, 4], selectivity: 0.25, cost: 0.0001}
outputs: {q: {from: met}}
""",
    rates={"s1": 400.0, "s2": 400.0},
    check=_by_the_formula,
)


def _link_is_full(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    (link,) = network.links
    used = report.bandwidth[f"{link.source}->{link.target}"] / link.bandwidth
    return [
        Criterion("the link is full and not more", FULL <= used <= BARELY_MORE, f"{used:.0%} of its bandwidth"),
        _drops_of(layout, "the wide tuples are dropped, the thin ones are not"),
        _cpu_is_free(report, network),
    ]


def _memory_is_full(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    used = report.memory.get("A", 0.0) / (network.nodes["A"].memory or 1.0)
    return [
        Criterion("the memory is full and not more", FULL <= used <= BARELY_MORE, f"{used:.0%} of it, on the mean"),
        _drops_of(layout, "what takes state is dropped, what takes none is not"),
        _cpu_is_free(report, network),
    ]


def _drops_of(layout: RunLayout, claim: str) -> Criterion:
    """That s1 is dropped, and s2 is not."""
    shares = {name: kept(layout, name) / max(offered(layout, name), 1) for name in ("s1", "s2")}
    said = ", ".join(f"{share:.0%} of {name} kept" for name, share in shares.items())
    return Criterion(claim, shares["s1"] < FULL < shares["s2"], said)


def _cpu_is_free(report: RunReport, network: Network) -> Criterion:
    busiest = max(report.load[name] / node.cpu for name, node in network.nodes.items())
    return Criterion("and the CPU is not what limits", busiest < 0.5, f"{busiest:.0%} of it is asked for")


FULL, BARELY_MORE = 0.8, 1.05
"""Shares of a link or of a memory between which it counts as just full."""

BANDWIDTH = NetworkRun(
    id="spark-bandwidth",
    TITLE="A full link on Spark: bytes are measured, and the plan keeps within its bandwidth",
    CLAIM=Claim("fit-short", "Section 4", "bandwidth can be a bottleneck as CPU can; the paper leaves it open"),
    text=f"""
version: 1
name: spark-bandwidth
streams: {{s1: {{max_rate: 400}}, s2: {{max_rate: 400}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  wide: {{node: A, from: s1, run: '{named(widened)}', cost: 0.0001}}
  thin: {{node: A, from: s2, cost: 0.0001}}
  b1: {{node: B, from: wide, cost: 0.0001}}
  b2: {{node: B, from: thin, cost: 0.0001}}
outputs: {{q1: {{from: b1}}, q2: {{from: b2}}}}
links: {{A->B: {{bandwidth: 130000}}}}
""",
    rates={"s1": 400.0, "s2": 400.0},
    check=_link_is_full,
    seconds=120.0,
    target_seconds=8.0,
    full=False,
    notes=(
        "Wide tuples take ten times the bytes of thin ones; the file declares 100 for each, by which the link has room "
        "for all. Nothing slows the link itself: what is shown is that the plan keeps within it.",
    ),
)

MEMORY = NetworkRun(
    id="spark-memory",
    TITLE="A full memory on Spark: state is measured, and the plan keeps within it",
    CLAIM=Claim("fit-short", "Section 4", "memory can be a bottleneck as CPU can; the paper leaves it open"),
    text=f"""
version: 1
name: spark-memory
streams:
  s1: {{max_rate: 400, schema: 'id bigint, value double'}}
  s2: {{max_rate: 400, schema: 'id bigint, value double'}}
nodes: {{A: {{cpu: 1.0, memory: 1e6}}}}
operators:
  count: {{node: A, from: s1, kind: aggregate, window: 10s, run: '{named(distinct)}', cost: 0.0001}}
  other: {{node: A, from: s2, cost: 0.0001}}
outputs: {{q1: {{from: count}}, q2: {{from: other}}}}
""",
    rates={"s1": 400.0, "s2": 400.0},
    check=_memory_is_full,
    seconds=120.0,
    target_seconds=8.0,
    full=False,
    notes=(
        "Every tuple is held for 10 s, so that none comes twice. Bytes are those of rows in Spark's state stores; how "
        "large their caches become is a setting.",
    ),
)

TABLE1 = NodesRun(
    id="spark-table1",
    TITLE="Table 1 on two Spark applications: coordinated shedding against nodes that plan alone",
    CLAIM=Claim(LONG_PAPER, "Table 1", "the best plan earns 0.6 where a node that maximises its own output earns 1/3"),
    text=f"""
version: 1
name: spark-table1
streams: {{s1: {{max_rate: 100}}, s2: {{max_rate: 100}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}}}
operators:
  a1: {{node: A, from: s1, run: '{named(ms_10)}', cost: 0.010}}
  a2: {{node: A, from: s2, run: '{named(ms_20)}', cost: 0.020}}
  b1: {{node: B, from: a1, run: '{named(ms_30)}', cost: 0.030}}
  b2: {{node: B, from: a2, run: '{named(ms_10)}', cost: 0.010}}
outputs: {{q1: {{from: b1}}, q2: {{from: b2}}}}
""",
    gain=1.3,
    seconds=100.0,
    target_seconds=12.0,
    notes=("A hundredth of the table's costs and a hundred times its rates. Operators wait their costs.",),
)

TREE = NodesRun(
    id="spark-dfit-tree",
    TITLE="D-FIT on five Spark applications in a tree",
    CLAIM=Claim(LONG_PAPER, "Sections 6.3 and 10", "each node sheds for itself and all below it from its own table"),
    text=f"""
version: 1
name: spark-dfit-tree
streams: {{s1: {{max_rate: 60}}, s2: {{max_rate: 60}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}, C: {{cpu: 1.0}}, D: {{cpu: 1.0}}, E: {{cpu: 1.0}}}}
operators:
  a1: {{node: A, from: s1, run: '{named(ms_10)}', cost: 0.010}}
  a2: {{node: A, from: s2, run: '{named(ms_20)}', cost: 0.020}}
  b1: {{node: B, from: a1, run: '{named(ms_2)}', cost: 0.002}}
  c1: {{node: C, from: a2, run: '{named(ms_2)}', cost: 0.002}}
  d1: {{node: D, from: b1, run: '{named(ms_60)}', cost: 0.060}}
  e1: {{node: E, from: c1, run: '{named(ms_20)}', cost: 0.020}}
outputs: {{q1: {{from: d1}}, q2: {{from: e1}}}}
""",
    gain=1.2,
    seconds=180.0,
    target_seconds=45.0,
    notes=("Operators wait their costs: five applications on two cores can each be given time, not a core.",),
)

DIAMOND = NodesRun(
    id="spark-dfit-diamond",
    TITLE="D-FIT on four Spark applications in a diamond",
    CLAIM=Claim("fit-short", "Section 4", "nodes with a common descendant have to be planned together"),
    text=f"""
version: 1
name: spark-dfit-diamond
streams: {{s1: {{max_rate: 60}}, s2: {{max_rate: 60}}}}
nodes: {{A: {{cpu: 1.0}}, B: {{cpu: 1.0}}, C: {{cpu: 1.0}}, D: {{cpu: 1.0}}}}
operators:
  a1: {{node: A, from: s1, run: '{named(ms_10)}', cost: 0.010}}
  a2: {{node: A, from: s2, run: '{named(ms_20)}', cost: 0.020}}
  b1: {{node: B, from: a1, run: '{named(ms_2)}', cost: 0.002}}
  c1: {{node: C, from: a2, run: '{named(ms_2)}', cost: 0.002}}
  d1: {{node: D, from: b1, run: '{named(ms_60)}', cost: 0.060}}
  d2: {{node: D, from: c1, run: '{named(ms_10)}', cost: 0.010}}
outputs: {{q1: {{from: d1}}, q2: {{from: d2}}}}
""",
    gain=1.2,
    seconds=150.0,
    target_seconds=36.0,
    notes=("Operators wait their costs. B, C and D are one cluster, planned by its leader.",),
)
