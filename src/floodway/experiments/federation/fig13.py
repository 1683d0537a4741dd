"""Figure 13: three participants as separate Spark applications; load rises, moves away, spikes, and falls again.

Node 0 (A) watches four parts of one trace, nodes 1 and 2 (B, C) two parts of another, with the whole intrusion query:
active sources, clusters of them, and the join of active sources with those of many protocols. A also looks for many
protocols alone, which no contract lets it move. All have contracts with each other at one fixed
price, the marginal cost at 70% of a CPU. The replay changes speed by a script: (1) A's load rises and goes to B, (2)
again, (3) A's load rises once more, B refuses and C takes it, (4) B's load spikes and a partner with room takes a part,
(5) it falls and nothing moves. What the moved fragments wrote is then compared with a run in which nothing moved.

In the paper the spike's load went to node 2. That is no claim about node 2: whoever has room takes it, and which of the
two has room depends on what the trace brings at that moment. The claim is one move, after which all nodes operate
within capacity again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path

import pyarrow as pa

from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import Federation, parse_federation
from floodway.experiments.federation.story import CATALOGUE, Feeding, Story, example, rows
from floodway.experiments.plots import FAINT, PALETTE, Figure, panels, style
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.job.status.parts import MovePart
from floodway.spark.log import LogReader

TITLE = "Load moves between three Spark applications"
CLAIM = Claim(
    "contracts",
    "Figure 13",
    "load rises and moves to one partner twice, then to the other; a spike brings one more move, after which all "
    "operate within capacity; no move when load falls; a move takes 75 ms and loses the operators' state",
)
COST = 0.02
"""CPU-seconds a tuple, declared: the story is about rates, and must not depend on what else the machine does."""
PRICE = 11.0
PERIOD_SECONDS, TRIGGER_SECONDS, LEASE_SECONDS = 5.0, 4.0, 60.0
OWNED = {"A": ("u0", "u1", "u2", "u3", "local"), "B": ("m0",), "C": ("m1",)}
QUERIES = {
    "u0": "active-sources",
    "u1": "active-clusters",
    "u2": "suspects",
    "u3": "active-sources",
    "local": "many-protocols",
    "m0": "active-sources",
    "m1": "active-clusters",
}
PARAMETERS = {
    "active-sources": "at_least: 2",
    "active-clusters": "at_least: 2, sources: 2, prefix: 2",
    "suspects": "connections: 2, protocols: 2",
    "many-protocols": "at_least: 2",
}
MOVABLE = "active-sources, active-clusters, suspects"
QUIET = {"u0": 0.10, "u1": 0.10, "u2": 0.10, "u3": 0.10, "local": 0.24, "m0": 0.12, "m1": 0.04}


@dataclass(frozen=True, slots=True)
class Phase:
    """What changes (load by part), how many moves are done at its end, and its seconds, at least and at most."""

    name: str
    load: Mapping[str, float]
    moves: int
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class PhaseEnd:
    """When a phase was over, in seconds since the start, and how many moves were done by then."""

    phase: str
    at: float
    moves: int


PHASES = (
    Phase("constant", {}, 0, 30.0, 30.0),
    Phase("A rises", {"u0": 0.16, "u1": 0.16, "u2": 0.16, "u3": 0.16}, 1, 25.0, 150.0),
    Phase("A rises again", {"u0": 0.22, "u1": 0.22, "u2": 0.22, "u3": 0.22}, 2, 25.0, 150.0),
    Phase("A rises once more", {"u0": 0.27, "u1": 0.27, "u2": 0.34, "u3": 0.34}, 3, 25.0, 150.0),
    Phase("B spikes", {"m0": 0.31}, 4, 25.0, 150.0),
    Phase("B falls", {"m0": 0.12}, 4, 40.0, 40.0),
)


def run(*, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
    """Play the script, compare with an unmoved run, and see whether the moves tell the paper's story."""
    logs = example("intrusion_logs")
    table = logs.generated(seeds[0], seconds=3000.0, rate=15.0) if trace is None else logs.read_trace(trace)
    table = _lasting(table)
    parts = [part for names in OWNED.values() for part in names]
    text = _text(free_ports(3))
    federation = parse_federation(text, name="figure-13")
    ends: list[PhaseEnd] = []
    pauses: list[dict[str, float]] = []
    options = ["--period", f"{PERIOD_SECONDS:g}", "--trigger", f"{TRIGGER_SECONDS:g}", "--lease", f"{LEASE_SECONDS:g}"]
    with tempfile.TemporaryDirectory(prefix="floodway-federation-") as folder:
        with Story(Path(folder), text, federation, logs.SCHEMA, options) as story:
            for place, part in enumerate(parts):
                own = table.take(list(range(place, table.num_rows, len(parts))))
                story.feeds[part] = Feeding(story.shared / "logs" / part, own, QUIET[part] / COST)
            story.wait_ready()
            for done, phase in enumerate(PHASES):
                progress((done + 1) / (len(PHASES) + 2))
                for part, load in phase.load.items():
                    story.feeds[part].rate = load / COST
                story.play(phase.least, phase.most, partial(_moved, story, phase.moves))
                pauses += [story.pauses(move) for move in story.moves()[len(pauses) :]]
                ends.append(PhaseEnd(phase.name, story.seconds(), len(story.moves())))
            for feed in story.feeds.values():
                feed.close(_closing(feed.table))
            story.drain()
            moves = story.moves()
        progress(0.9)
        unmoved = _unmoved(Path(folder), federation)
        return _result(story, moves, ends, pauses, unmoved, trace)


def _moved(story: Story, count: int) -> bool:
    return len(story.moves()) >= count


def _text(ports: Sequence[int]) -> str:
    members = "\n".join(
        f'  {name}: {{url: "http://127.0.0.1:{port}", cpu: 1.0}}' for name, port in zip(OWNED, ports, strict=True)
    )
    contracts = "\n".join(f"  {pair}: {{price: {PRICE}, kinds: [{MOVABLE}]}}" for pair in ("A<->B", "A<->C", "B<->C"))
    fragments = "\n".join(
        f"  {part}: {{owner: {owner}, run: {QUERIES[part]}, logs: {{connections: logs/{part}}}, "
        f"parameters: {{window: 60, {PARAMETERS[QUERIES[part]]}}}, cost: {COST}}}"
        for owner, names in OWNED.items()
        for part in names
    )
    return f"version: 1\nparticipants:\n{members}\ncontracts:\n{contracts}\nfragments:\n{fragments}\n"


def _lasting(table: pa.Table) -> pa.Table:
    """The trace as often as its parts need to last for the longest story, each time later than before."""
    seconds = sum(phase.most for phase in PHASES)
    highest = {part: max(QUIET[part], *(phase.load.get(part, 0.0) for phase in PHASES)) for part in QUIET}
    wanted = len(QUIET) * seconds * max(highest.values()) / COST
    at = table.column("at").cast(pa.int64()).to_numpy()
    span = int(at[-1] - at[0]) + 1_000_000
    kind = table.schema.field("at")
    copies = [
        table.set_column(0, kind, pa.array(at + number * span).cast(kind.type))
        for number in range(ceil(wanted / table.num_rows))
    ]
    return pa.concat_tables(copies)


def _closing(table: pa.Table) -> pa.Table:
    """A connection a day after the last: it closes all windows before it."""
    last = table.slice(table.num_rows - 1)
    later = pa.array([last.column("at").to_pylist()[0]], last.schema.field("at").type)
    day = pa.array([later.cast(pa.int64())[0].as_py() + 86_400_000_000], pa.int64()).cast(later.type)
    return last.set_column(0, last.schema.field("at"), day)


@dataclass(frozen=True, slots=True)
class Unmoved:
    """One fragment in a session where nothing moves: whether the moved one wrote the same, and what it cost.

    `cost` is CPU-seconds a tuple of Spark's tasks and their Python workers, in one batch.
    """

    same: bool
    written: int
    cost: float


def _unmoved(root: Path, federation: Federation) -> dict[str, Unmoved]:
    """Run every fragment over its whole log in one session, and compare what it writes, to the tuple."""
    from floodway.spark.measure.cpu import CpuMeter
    from floodway.spark.query.catalogue import load_catalogue
    from floodway.spark.query.moving_fragment import MovingLayout, moving_query
    from floodway.spark.session.session import spark_session
    from floodway.spark.source import register

    catalogue = load_catalogue(CATALOGUE)
    spark = spark_session("floodway-unmoved")
    register(spark)
    meter = CpuMeter(spark)
    found: dict[str, Unmoved] = {}
    for name, spec in federation.fragments.items():
        layout = MovingLayout(root / "check" / name, root / "shared")
        unmoved_spec = replace(spec, output=f"unmoved/{name}")
        before = meter.cpu_seconds()
        moving_query(spark, unmoved_spec, catalogue, layout).process_available()
        (log,) = spec.logs.values()
        cost = (meter.cpu_seconds() - before) / sum(LogReader(root / "shared" / log).end_positions().values())
        moved, unmoved = rows(root / "shared" / spec.output), rows(root / "shared" / unmoved_spec.output)
        found[name] = Unmoved(moved == unmoved, len(unmoved), cost)
    with suppress(Exception):
        spark.stop()
    return found


def _result(
    story: Story,
    moves: list[MovePart],
    ends: list[PhaseEnd],
    pauses: list[dict[str, float]],
    unmoved: Mapping[str, Unmoved],
    trace: Path | None,
) -> Result:
    told = [f"{move.giver}→{move.taker}" for move in moves]
    spike = moves[3:4]
    spiked = next((one.at for one in ends if one.phase == "B spikes"), 0.0)
    fullest = max(
        (load for sample in story.samples if sample.at >= spiked for load in sample.load.values()), default=0.0
    )
    ended = [part for part, feed in story.feeds.items() if feed.fed >= feed.table.num_rows]
    after_fall = ends[-1].moves - ends[-2].moves
    names = ("prepare", "stop", "hand_over", "start")
    phases = {phase: [move.seconds.get(phase, 0.0) for move in moves] for phase in names}
    mean = {phase: sum(found) / max(1, len(found)) for phase, found in phases.items()}
    same = all(one.same and one.written > 0 for one in unmoved.values())
    return Result(
        measured={
            "moves": [
                {"route": route, "fragments": list(move.fragments), "seconds": dict(move.seconds), "price": move.price}
                for route, move in zip(told, moves, strict=True)
            ],
            "moves_after_the_fall": after_fall,
            "pause_seconds": pauses,
            "mean_move_seconds": {**mean, "total": sum(mean[phase] for phase in names[1:])},
            "results_equal_to_unmoved_run": {name: one.same for name, one in unmoved.items()},
            "result_tuples": {name: one.written for name, one in unmoved.items()},
            "cost": {
                name: {"query": QUERIES[name], "declared": COST, "measured": one.cost} for name, one in unmoved.items()
            },
            "cores": {
                name: {
                    "declared": sum(sample.load[name] for sample in story.samples) / max(len(story.samples), 1),
                    "used by its processes": story.cores_used(name),
                }
                for name in OWNED
            },
            "fullest_node_after_the_spike's_move": fullest,
            "phase_ends": [{"phase": one.phase, "at_seconds": one.at, "moves": one.moves} for one in ends],
            "trace": "generated" if trace is None else trace.name,
        },
        criteria=(
            Criterion("load moves A→B twice, then A→C", told[:3] == ["A→B", "A→B", "A→C"], ", ".join(told)),
            Criterion(
                "the spike at B brings one move, from B to whoever has room",
                len(moves) == 4 and all(move.giver == "B" for move in spike),
                ", ".join(told),
            ),
            Criterion("after that move all operate within capacity", 0.0 < fullest <= 1.0, f"{fullest:.2f}"),
            Criterion("nothing moves when load falls", after_fall == 0, str(after_fall)),
            Criterion("no part of the trace ended before the story", not ended, ", ".join(ended)),
            Criterion("results equal those of a run in which nothing moved", same),
        ),
        where="spark",
        notes=(
            "The paper's traces could not be had; the replayed one stands for both, cut into seven parts in turn.",
            f"Load is the arrival rate times a declared cost of {COST} CPU-seconds a tuple, so that the story does not "
            "depend on what else this machine does; the queries themselves are real. Beside it: what the "
            "processes took of a core, and CPU-seconds a tuple of every query by itself over its whole log.",
            "The paper's nodes find partners and streams in a catalogue in a distributed hash table. Here the "
            "federation file, which all have, names participants, logs and queries: whoever may take a query has a "
            "contract with its holder and knows it, so that there is nobody to be looked up.",
            "A move here keeps the windows' state and repeats nothing. The taker prepares while the fragment runs "
            "at the giver; a pause is from the end of the last batch there to the cut of the first batch here.",
        ),
        headline=f"moves {', '.join(told) or 'none'}; {after_fall} after the fall; results equal to an unmoved run: "
        f"{same}; a move takes {mean['stop']:.1f} s to stop, {mean['hand_over']:.2f} s to hand over, "
        f"{mean['start']:.1f} s to start; the longest pause of a fragment is "
        f"{max((pause for found in pauses for pause in found.values()), default=0.0):.1f} s",
        plots={"federation-fig13": lambda: _draw(story, moves)},
    )


def _draw(story: Story, moves: list[MovePart]) -> Figure:
    figure, (axes,) = panels(1, 1, width=9.0)
    times = [sample.at for sample in story.samples]
    for color, name in zip(PALETTE, story.federation.members, strict=False):
        axes.plot(times, [100 * sample.load[name] for sample in story.samples], color=color, label=f"node {name}")
    seen = 0
    for sample in story.samples:
        while seen < min(sample.moves, len(moves)):
            move = moves[seen]
            axes.axvline(sample.at, color=FAINT, linestyle="--", linewidth=0.9)
            axes.text(sample.at, 102, f"{move.giver}→{move.taker}", fontsize=8, ha="center")
            seen += 1
    axes.axhline(70, color=FAINT, linewidth=0.9)
    axes.set_ylim(0, 110)
    style(axes, title="Figure 13: load at three participants", x="time (s)", y="load (% of a CPU)")
    axes.legend(loc="lower right")
    return figure
