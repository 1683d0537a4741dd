"""How long a fragment stands still while it moves: two participants with a Spark application each, windowed queries.

The load of what A runs rises until it gives a fragment to B, and again until all have gone. The pause is the time from
the end of the last batch at A to the cut of the first at B, both by Spark's own files in the checkpoint
that moved. Beside it: what a batch waits for the next one where nothing moves, and what became of the tuples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from floodway.agent.wire.ports import free_ports
from floodway.contracts.federation_file import Federation, parse_federation
from floodway.experiments.bench.result import BenchResult, rounded
from floodway.experiments.bench.spark_common import BenchError
from floodway.experiments.federation.story import Feeding, Handover, Story, example
from floodway.experiments.result import Progress
from floodway.job.status.parts import MovePart
from floodway.spark.audit.run import audit_federation

GOAL_SECONDS = 1.0
COST = 0.01
"""CPU-seconds per tuple, declared: what moves when must not depend on what else the machine does."""
QUIET, FULL = 0.1, 0.88
"""Load of a fragment, and of all of A's while one is to move, in CPUs."""
PRICE = 6.0
"""Above what six quiet fragments cost A per CPU, below what a full A saves by giving one."""
SECONDS = 900.0
OPTIONS = ["--period", "2", "--trigger", "1", "--lease", "60"]
PATIENCE_SECONDS, GAPS = 240.0, 6
SEED = 20260118


def pause(*, long: bool, progress: Progress) -> BenchResult:
    """Seconds between the last batch at the giver and the first at the taker; the longest of all moves is judged."""
    logs = example("intrusion_logs")
    count = 6 if long else 3
    federation = parse_federation(text := _text(free_ports(2), count), name="bench-move")
    with tempfile.TemporaryDirectory(prefix="floodway-move-") as folder:
        with Story(Path(folder), text, federation, logs.SCHEMA, OPTIONS) as story:
            moves, found, usual = _moves(story, logs, progress)
            fed = {name: one.fed for name, one in story.feeds.items()}
            for one in story.feeds.values():
                one.close()
            story.drain()
        differences = _differences(federation, story.shared, fed)
    pauses = [one.cut for one in found]
    return BenchResult(
        id="federation-move",
        ours=rounded(max(pauses)),
        peer=rounded(usual),
        ratio=rounded(max(pauses) / usual),
        goal=f"ours <= {GOAL_SECONDS:g} s, nothing lost or doubled",
        holds=max(pauses) <= GOAL_SECONDS and not differences,
        unit="s from the last batch at the giver to the first at the taker",
        detail={
            "peer": "from the end of a batch to the cut of the next where nothing moves, one trigger a second; median",
            "pauses": pauses,
            "until the first batch at the taker was committed": [one.committed for one in found],
            "moves": [{phase: rounded(taken) for phase, taken in move.seconds.items()} for move in moves],
            "median pause": rounded(median(pauses)),
            "differences": differences,
        },
    )


def _moves(story: Story, logs: Any, progress: Progress) -> tuple[list[MovePart], list[Handover], float]:
    """Raise the load of what A still runs until a fragment moves, again and again; the pauses, and what is usual."""
    names = list(story.federation.fragments)
    for at, name in enumerate(names):
        table = logs.generated(SEED + at, seconds=SECONDS, rate=FULL / COST)
        story.feeds[name] = Feeding(story.shared / "logs" / name, table, QUIET / COST)
    story.wait_ready()
    story.play(5.0, PATIENCE_SECONDS, lambda: all(len(story.gaps(name)) >= GAPS for name in names))
    gaps = [gap for name in names for gap in story.gaps(name)[1:]]  # the first batch compiles its plan
    if not gaps:
        raise BenchError(f"no two batches ended within {PATIENCE_SECONDS:g} s", hint="Leave it more of the machine")
    found: list[Handover] = []
    left, done = list(names), 0
    while left:
        for name in left:
            story.feeds[name].rate = FULL / len(left) / COST
        story.play(0.0, PATIENCE_SECONDS, partial(_is_over, story, done))
        if not _is_over(story, done):
            raise BenchError(
                f"nothing moved within {PATIENCE_SECONDS:g} s", hint=f"A's load: {story.part('A').load:.2f}"
            )
        move = story.moves()[done]
        found += _handovers(story, move)
        for name in move.fragments:
            left.remove(name)
            story.feeds[name].rate = QUIET / COST
        done += 1
        progress(1 - len(left) / (len(names) + 1))
    return story.moves(), found, median(gaps)


def _is_over(story: Story, number: int) -> bool:
    """Whether there was such a move, and the taker has ended a batch of each of its fragments."""
    moves = story.moves()
    return len(moves) > number and len(_handovers(story, moves[number])) == len(moves[number].fragments)


def _handovers(story: Story, move: MovePart) -> list[Handover]:
    found = [story.handover(move, fragment) for fragment in move.fragments]
    return [one for one in found if one is not None and one.committed is not None]


def _text(ports: Sequence[int], count: int) -> str:
    fragments = "\n".join(
        f"  f{at}: {{owner: A, run: active-sources, logs: {{connections: logs/f{at}}}, "
        f"parameters: {{window: 60, at_least: 2}}, cost: {COST}}}"
        for at in range(count)
    )
    members = "\n".join(
        f'  {name}: {{url: "http://127.0.0.1:{port}", cpu: {cpu}}}'
        for name, port, cpu in zip("AB", ports, (1.0, 4.0), strict=True)
    )
    contracts = f"  A->B: {{price: {PRICE}}}"
    return f"version: 1\nparticipants:\n{members}\ncontracts:\n{contracts}\nfragments:\n{fragments}\n"


def _differences(federation: Federation, shared: Path, fed: dict[str, int]) -> list[str]:
    """What was lost or doubled: by the audit of every fragment, and against what was fed."""
    found: list[str] = []
    for name, audit in audit_federation(federation, shared, full=True).items():
        found += [f"{name}: {one}" for one in audit.differences]
        if audit.tuples_offered != fed[name]:
            found.append(f"{name}: {audit.tuples_offered} of {fed[name]} tuples were offered")
    return found
