"""C-FIT with eight inputs at ε = 10%: 43,758 feasible rows. Look-up, time to build, peak memory.

Peers: a plain scan over the same rows for the look-up; for the build, the other way to such a table, which is to solve
the program at every row (a few hundred solves are measured, the rest is multiplication); for memory, the bare process
that has imported the same modules.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from floodway.errors import FloodwayError
from floodway.experiments.bench.planning_exact import WarmSolver, overloaded_rates
from floodway.experiments.bench.result import BenchResult, each, interleave, portions_of, rounded, timed
from floodway.experiments.result import Progress
from floodway.experiments.staying_fit.table3 import one_server
from floodway.planning.fit.direct import SpreadRule
from floodway.planning.fit.index import RowIndex, scan
from floodway.planning.fit.lattice import feasible_codes, rates_of
from floodway.planning.fit.planner import FitPlanner
from floodway.planning.fit.spread import steps
from floodway.planning.program import Program

INPUTS = 8
EPSILON = 0.1
ROWS = 43_758
LOOKUP_GOAL_US = 50.0
BUILD_GOAL_SECONDS = 1.0
MEMORY_GOAL_MB = 200.0
PORTION = 20
SOLVES = 300


class ChildError(FloodwayError):
    """The process in which memory is measured failed."""


def planner() -> FitPlanner:
    """The table of Table 3: eight equal chains on one server, points 10% apart."""
    return FitPlanner(Program(one_server(INPUTS)), EPSILON, spread=SpreadRule.UNIFORM)


def lookup(*, long: bool, progress: Progress) -> BenchResult:
    """A whole look-up (row, min(F, r), check against the bound, keeps), and the index alone, against a scan."""
    fit = planner()
    program = fit.program
    progress(0.1)
    top = program.max_feasible_rates
    points = [steps(float(t) * EPSILON, float(t)) for t in top]
    share = program.full_use / program.capacity[:, None]
    codes = feasible_codes(points, share, 10**6)
    if codes is None or len(codes) != ROWS:
        raise FloodwayError(f"the table should have {ROWS} rows", hint="The spread of sample points has changed")
    rows, index = rates_of(points, codes), RowIndex(points, codes, program.objective, share)
    rates = overloaded_rates(program, 8_000 if long else 2_000, float(top[0]))
    each(fit.lookup)(rates)  # bounds are sharpened by the first look-ups
    progress(0.3)
    portions = portions_of(rates, PORTION)
    value = program.objective
    pairs = interleave(each(fit.lookup), each(lambda r: scan(rows, value, r)), portions[: len(portions) // 4])
    progress(0.7)
    alone = interleave(each(index.best), each(fit.lookup), portions)
    progress(1.0)
    ours = pairs.ours_median * 1e6 / PORTION
    found = [abs(float(np.minimum(index.best(r), r) @ value) - _scanned(rows, value, r)) for r in rates[:100]]
    return BenchResult(
        id="planning-fit-lookup",
        ours=rounded(ours),
        peer=rounded(pairs.peer_median * 1e6 / PORTION),
        ratio=rounded(pairs.ratio),
        goal=f"ours < {LOOKUP_GOAL_US:g} µs at {ROWS} rows",
        holds=ours < LOOKUP_GOAL_US,
        unit="CPU µs a plan",
        detail={
            "peer": "plain vectorised scan of all rows for the best one, without keeps",
            "rows": fit.size,
            "index alone (µs)": rounded(alone.ours_median * 1e6 / PORTION),
            "halves and members looked at": index.work,
            "largest difference of the score from the scan's": max(found),
            "answers replaced by a solved one": fit.solved,
        },
    )


def _scanned(rows: np.ndarray[tuple[int, ...], np.dtype[np.float64]], value: object, rates: object) -> float:
    earned = np.minimum(rows, np.asarray(rates)) @ np.asarray(value)
    return float(earned.max())


def build(*, long: bool, progress: Progress) -> BenchResult:
    """CPU seconds from the network to a planner that answers."""
    repeats = 9 if long else 3
    seconds: list[float] = []
    solving: list[float] = []
    program = Program(one_server(INPUTS))
    solver = WarmSolver(program)
    rates = overloaded_rates(program, SOLVES, float(program.max_feasible_rates[0]))
    for number in range(repeats):
        seconds.append(timed(planner)[1])
        solving.append(timed(partial(each(solver.flows), rates))[1] / len(rates) * ROWS)
        progress((number + 1) / repeats)
    ours, peer = median(seconds), median(solving)
    return BenchResult(
        id="planning-fit-build",
        ours=rounded(ours),
        peer=rounded(peer),
        ratio=rounded(peer / ours),
        goal=f"ours < {BUILD_GOAL_SECONDS:g} s",
        holds=ours < BUILD_GOAL_SECONDS,
        unit="CPU s",
        detail={
            "peer": f"a warm HiGHS solve for each of {ROWS} rows, from {SOLVES} that were measured",
            "builds": [rounded(value) for value in seconds],
        },
    )


def memory(*, long: bool, progress: Progress) -> BenchResult:
    """Peak resident memory of a process that does nothing else than build the table."""
    bare, full, used = (_peak_of_child(what) for what in ("import", "build", "use"))
    progress(1.0)
    return BenchResult(
        id="planning-fit-memory",
        ours=rounded(full),
        peer=rounded(bare),
        ratio=rounded(full / bare),
        goal=f"ours < {MEMORY_GOAL_MB:g} MB",
        holds=full < MEMORY_GOAL_MB,
        unit="MB, peak of the whole process",
        detail={
            "peer": "the same process with all modules imported and nothing built",
            "added": rounded(full - bare),
            "after a look-up, with the compiler that makes it quick": rounded(used),
        },
    )


def _peak_of_child(what: str) -> float:
    done = subprocess.run([sys.executable, "-m", __name__, what], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChildError(f"measuring memory failed: {done.stderr.strip()[-300:]}", hint="Run it alone to see why")
    return float(json.loads(done.stdout)["peak_mb"])


def peak_megabytes() -> float:
    """Peak resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # `ru_maxrss` is handed down through fork and exec on Linux: a child would report its parent's peak.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return float(lines["VmHWM"].split()[0]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    if sys.argv[1] != "import":
        fit = planner()
        if sys.argv[1] == "use":
            fit.lookup(fit.program.max_feasible_rates)
    sys.stdout.write(json.dumps({"peak_mb": peak_megabytes()}))
