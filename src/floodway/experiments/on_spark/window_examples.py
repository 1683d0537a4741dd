"""Window Drop on Spark: that windows are dropped whole, and that the plan counts what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from floodway.agent.loop.record import RunReport
from floodway.experiments.on_spark.example_operators import ms_10
from floodway.experiments.on_spark.examples import LONG_PAPER, kept, named, offered
from floodway.experiments.on_spark.runs import NetworkRun
from floodway.experiments.result import Claim, Criterion
from floodway.network.model import Network
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import window_ppm
from floodway.spark.log import LogReader
from floodway.spark.query.layout import RunLayout
from floodway.units import PPM

MORE_WINDOWS = 1.2
"""Least windows that the choice must bring, of what even drops would."""


def _windows(
    network: Network, layout: RunLayout, stream: str, output: str
) -> tuple[Counter[tuple[int, int]], dict[tuple[int, int], int]]:
    """Counts by start and key of a stream's windows of 10 s by 5 s, nothing dropped, and of those that were put out."""
    slide = 5_000_000
    whole: Counter[tuple[int, int]] = Counter()
    for row in _rows(layout.stream(network, stream)):
        last = _micros(row["event_time"]) // slide * slide
        for start in (last - slide, last):
            whole[start, row["key"]] += 1
    found = {(_micros(row["event_time"]), row["key"]): row["count"] for row in _rows(layout.output(network, output))}
    return whole, found


def _equal(outputs: Sequence[tuple[Mapping[tuple[int, int], int], Mapping[tuple[int, int], int]]]) -> Criterion:
    wrong = sum(whole.get(key, 0) != count for whole, found in outputs for key, count in found.items())
    every = sum(len(found) for _, found in outputs)
    return Criterion(
        "every window that comes out is as it would be if nothing had been dropped",
        every > 0 and wrong == 0,
        f"{wrong} of {every} counts differ",
    )


def _subset(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    whole, found = _windows(network, layout, "s", "q")
    starts = {start for start, _ in found}
    closed = {start for start, _ in whole if start <= max(starts, default=0)}
    return [
        _equal([(whole, found)]),
        Criterion(
            "some windows are dropped whole", len(starts) < len(closed), f"{len(starts)} of {len(closed)} put out"
        ),
    ]


def _one_kept_whole(report: RunReport, network: Network, layout: RunLayout) -> Sequence[Criterion]:
    """Of the later half of the run, when the plan has settled."""
    shape = WindowShape(10_000_000, 5_000_000)
    outputs = [_windows(network, layout, stream, output) for stream, output in (("s", "q"), ("t", "p"))]
    shares = []
    for whole, found in outputs:
        ended = sorted({start for start, _ in whole})[:-3]
        later = set(ended[len(ended) // 2 :])
        shares.append(len(later & {start for start, _ in found}) / max(len(later), 1))
    tuples = sum(kept(layout, at) for at in ("s", "t")) / max(sum(offered(layout, at) for at in ("s", "t")), 1)
    even = 2.0 * window_ppm(shape, round(tuples * PPM)) / PPM
    low, high = sorted(shares)
    return [
        _equal(outputs),
        Criterion(
            "of two equal streams one is kept whole",
            low < 0.5 and high >= 0.9,
            f"{high:.0%} of the windows of one, {low:.0%} of the other",
        ),
        Criterion(
            "and by that more windows come out than if as many tuples were kept of both alike",
            low + high >= MORE_WINDOWS * even,
            f"{low + high:.2f} of two, against {even:.2f}",
        ),
    ]


def _rows(log: Any) -> list[dict[str, Any]]:
    reader = LogReader(log)
    ends = reader.end_positions()
    return [row for p, end in ends.items() for batch in reader.read(p, 0, end) for row in batch.to_pylist()]


def _micros(value: Any) -> int:
    return int(value.timestamp() * 1e6 + 0.5)


DROP = NetworkRun(
    id="spark-window-drop",
    TITLE="Window Drop on Spark: windows are dropped whole",
    CLAIM=Claim(LONG_PAPER, "Section 2", "drops upstream of an aggregate are Window Drops: results are a subset"),
    text="""
version: 1
name: spark-window-drop
streams: {s: {max_rate: 1000}}
nodes: {A: {cpu: 1.0}}
operators:
  work: {node: A, from: s, kind: delay, cost: 0.002}
  count: {node: A, from: work, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}
outputs: {q: {from: count}}
""",
    rates={"s": 900.0},
    check=_subset,
    seconds=90.0,
    scored=False,
    timed=False,
    notes=("A window is worth as many tuples as it has groups, so that a score in tuples says little here.",),
)

CHOICE = NetworkRun(
    id="spark-window-choice",
    TITLE="Where to drop on Spark when windows are dropped whole: one of two equal streams",
    CLAIM=Claim(
        LONG_PAPER, "Section 2", "Window Drop discards in units of whole windows; the paper's program counts tuples"
    ),
    text=f"""
version: 1
name: spark-window-choice
streams: {{s: {{max_rate: 400}}, t: {{max_rate: 400}}}}
nodes: {{A: {{cpu: 1.0}}}}
operators:
  os: {{node: A, from: s, run: '{named(ms_10)}', cost: 0.010}}
  ot: {{node: A, from: t, run: '{named(ms_10)}', cost: 0.010}}
  ws: {{node: A, from: os, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
  wt: {{node: A, from: ot, kind: aggregate, window: 10s, slide: 5s, group_by: key, cost: 0}}
outputs: {{q: {{from: ws}}, p: {{from: wt}}}}
""",
    rates={"s": 72.0, "t": 72.0},
    check=_one_kept_whole,
    seconds=120.0,
    target_seconds=6.0,
    scored=False,
    full=False,
    timed=False,
    notes=(
        "Half of the tuples of both hold 29% of their windows, all of one hold 50%: the paper's program does not see "
        "that, the choice among its plans is ours.",
        "Operators wait their costs. Each stream is a query of its own, and asks for 72% of the node.",
    ),
)
