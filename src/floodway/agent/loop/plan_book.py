"""Names for plans, and the book in which the ledger's `plan` can be looked up: ROOT/plans/.

A plan is named by what it does (`job/decision.py: named`): the same decision has the same name in every process and
at any time, another one has another.

The book gets a line when the first batch is cut under a plan: at most one a batch, and none for the plans in between,
which change ten times a second and drop nothing. The newest lines are kept, some 64 MiB.

    {"arcs": {}, "id": "8f3a01bc", "keeps": {"clicks": 0.4}, "mode": "enforce", "salt": 0,
     "streams": {"clicks": {"budget": 800, "keep_ppm": 400000}}, "time_us": 1735689600000000, "why": {"A.main": "…"}}
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from floodway.agent.loop.steering import Steered
from floodway.errors import InputError
from floodway.job.decision import JobDecision
from floodway.job.store.line_log import KEPT_SEGMENTS, KeptLines
from floodway.job.store.store import LocalStore

PLANS = "plans"
REMEMBERED = 1000
"""Plans that may still be cut under: those of the last minute or two, ten a second."""


class PlanBook:
    """Notes the plans that batches are cut under; `issued` and `cut` may be called from different threads."""

    def __init__(self, root: Path, *, kept_segments: int = KEPT_SEGMENTS) -> None:
        self._lines = KeptLines(LocalStore(root), PLANS, kept_segments=kept_segments)
        self._issued: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._written: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()
        self.seen: bool | None = None
        """Whether the last batch was cut under plans of this job; None before the first batch."""
        for line in self._lines.latest():
            self._mark(str(line.get("id")))

    def issued(self, decision: JobDecision, steered: Steered | None = None) -> None:
        """A decision is in force from now on; `steered` says why, None where nothing was planned."""
        with self._lock:
            if decision.plan not in self._issued:
                self._issued[decision.plan] = entry(decision, steered)
            self._issued.move_to_end(decision.plan)
            while len(self._issued) > REMEMBERED:
                self._issued.popitem(last=False)

    def cut(self, plans: Iterable[str]) -> None:
        """A batch was journaled: its plans are on record before anything is dropped under them."""
        with self._lock:
            used = sorted(plans)
            if used:
                self.seen = all(plan in self._issued or plan in self._written for plan in used)
            fresh = [plan for plan in used if plan in self._issued and plan not in self._written]
            if fresh:
                self._lines.append([self._issued[plan] for plan in fresh])
            for plan in fresh:
                self._mark(plan)

    def _mark(self, plan: str) -> None:
        self._written[plan] = None
        while len(self._written) > 10 * REMEMBERED:
            self._written.popitem(last=False)


def entry(decision: JobDecision, steered: Steered | None) -> dict[str, Any]:
    """A plan as a line of the book."""
    return {
        "id": decision.plan,
        "time_us": decision.issued_us,
        "mode": decision.mode,
        "salt": decision.salt,
        "keeps": {} if steered is None else dict(steered.plan.keeps),
        "streams": {
            at: {"keep_ppm": stream.keep_ppm, "budget": stream.budget} for at, stream in decision.streams.items()
        },
        "arcs": dict(decision.arcs),
        "why": {} if steered is None else {name: control.reason for name, control in steered.control.items()},
        "rates": {} if steered is None else dict(steered.rates),
        "scale": 1.0 if steered is None else steered.scale,
    }


def find_plan(root: Path, plan: str) -> Mapping[str, Any]:
    """The line of a plan in a run's book, by its name as the ledger has it."""
    for line in KeptLines(LocalStore(root), PLANS).read():
        if line.get("id") == plan:
            return line
    raise InputError(
        f"no plan {plan!r} in {root / PLANS}",
        hint="Take a name from the `plan` of a line in the folder's ledger; of a long run the newest are kept",
    )
