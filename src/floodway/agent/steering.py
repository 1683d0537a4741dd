"""From what was measured to what is dropped: controllers choose the capacity, the planner chooses the drops.

Every fragment has a controller of its own, in units of *work*: seconds that its node's nominal CPU would need. With
P* = T/1.5, the batch period that meets its share T of the target, a controller that admits n per batch says that the
node is worth g = n/P* of its nominal capacity. The plan is made for the smallest g; by scaling, a look-up at r/g.

A stream that the plan keeps whole is not limited; one that it cuts gets a *budget* of keep·r·P* tuples a batch, so
that a batch holds the planned work however long the one before it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodway.agent.stages import stages
from floodway.control.base import Controller, Loop, Observation
from floodway.control.base import Decision as ControlDecision
from floodway.control.batch import BATCH_SHARE
from floodway.control.pid import PidConfig
from floodway.control.red import RedConfig
from floodway.control.registry import make_controller
from floodway.network.model import Arc, Network
from floodway.planning.plan import Plan, Planner
from floodway.spark.decision import PPM, Decision, Mode, StreamDecision
from floodway.spark.fragments import Fragment

LEAST_SCALE = 1e-3


@dataclass(frozen=True, slots=True)
class FragmentBatch:
    """A finished batch as the controller sees it: counts by source, mean latency of its results in seconds."""

    fragment: str
    offered: Mapping[str, int]
    kept: Mapping[str, int]
    batch_seconds: float
    latency_seconds: float | None
    arc_keeps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Steered:
    """The plan in force (for the demand), arrival rates, the capacity planned for, and what the controllers said."""

    plan: Plan
    rates: Mapping[str, float]
    scale: float
    decision: Decision
    control: Mapping[str, ControlDecision]


class Steering:
    """One node's (or one process's) loop state: a controller a fragment, one planner."""

    def __init__(
        self,
        planner: Planner,
        fragments: Mapping[str, Fragment],
        *,
        target_seconds: float,
        controller: str = "batch",
        salt: int = 0,
    ) -> None:
        self.target_seconds = target_seconds
        self._planner = planner
        self._fragments = fragments
        places = stages(fragments)
        period = {name: places[name].share_seconds(target_seconds) / BATCH_SHARE for name in fragments}
        heads = [name for name, f in fragments.items() if any(spec.location is not None for spec in f.sources)]
        self.period_seconds = min(period[name] for name in heads or fragments)
        self._salt = salt
        self._number = 0
        self._loops = {name: Loop(_controller(controller, target_seconds, self.period_seconds)) for name in fragments}
        self.control: dict[str, ControlDecision] = {}

    @property
    def network(self) -> Network:
        """The network that is steered."""
        return self._planner.network

    @property
    def scale(self) -> float:
        """g: the share of the nominal capacity that may be planned for now."""
        return max(min((d.capacity_scale for d in self.control.values()), default=1.0), LEAST_SCALE)

    def plan_with(self, planner: Planner) -> None:
        """From now on plan with this planner: the same network with other costs."""
        self._planner = planner

    def observe(self, now_seconds: float, batch: FragmentBatch, waiting: Mapping[str, int]) -> None:
        """Feed one finished batch to its fragment's controller."""
        fragment = self._fragments[batch.fragment]
        cost = source_work(self.network, fragment, batch.arc_keeps)
        full = source_work(self.network, fragment, {})
        self.control[batch.fragment] = self._loops[batch.fragment].step(
            Observation(
                time_seconds=now_seconds,
                waiting=_work(full, waiting),
                latency_seconds=batch.latency_seconds,
                kept=_work(cost, batch.kept),
                offered=_work(full, batch.offered),
                batch_seconds=batch.batch_seconds,
            )
        )

    def decide(self, rates: Mapping[str, float], demand: Mapping[str, float], mode: Mode, issued_us: int) -> Steered:
        """The decision for the coming batches: planned for the demand on them, both in tuples/s."""
        scale = self.scale
        plan = self._planner.plan(demand, scale)
        self._number += 1
        decision = Decision(
            plan=f"{self._number}",
            mode=mode,
            salt=self._salt,
            streams={
                spec.location: self._stream(plan, spec.producer, spec.branch)
                for fragment in self._fragments.values()
                for spec in fragment.sources
                if spec.location is not None
            },
            arcs={at: _ppm(keep) for at, keep in plan.keeps.items() if at not in self.network.streams},
            issued_us=issued_us,
        )
        return Steered(plan, dict(rates), scale, decision, dict(self.control))

    def _stream(self, plan: Plan, stream: str, branch: str | None) -> StreamDecision:
        keep = plan.keeps[stream] * (plan.keeps[branch] if branch else 1.0)
        if keep >= 1.0:
            return StreamDecision()
        return StreamDecision(_ppm(keep), max(1, round(keep * plan.rates[stream] * self.period_seconds)))


def source_work(network: Network, fragment: Fragment, arc_keeps: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the node's nominal CPU that one tuple of each source costs in this fragment.

    Costs and selectivities along the fragment's operators, with the keeps of drops on inner branches.
    """
    cpu = network.nodes[fragment.node].cpu
    inside = set(fragment.operators)
    below: dict[str, float] = {}

    def arc_work(producer: str, consumer: str) -> float:
        if consumer not in inside:
            return 0.0
        operator = network.operators[consumer]
        per_tuple = (operator.cost or 0.0) / cpu + network.contribution(operator, producer) * below[consumer]
        return per_tuple * arc_keeps.get(str(Arc(producer, consumer)), 1.0)

    for name in reversed(fragment.operators):
        cut = {arc.consumer for arc in fragment.cut if arc.producer == name}
        below[name] = sum(arc_work(name, c) for c in network.consumers[name] if c not in cut)
    work: dict[str, float] = {}
    for spec in fragment.sources:
        if spec.name == spec.producer:
            work[spec.location or spec.name] = sum(arc_work(spec.producer, c) for c in network.consumers[spec.producer])
        else:
            consumer = spec.name.removeprefix(f"{spec.producer}->")
            # The source itself applies the branch's keep here, so what it passes on costs the full amount.
            keep = arc_keeps.get(spec.name, 1.0)
            work[spec.location or spec.name] = arc_work(spec.producer, consumer) / keep if keep > 0 else 0.0
    return work


def _controller(name: str, target_seconds: float, period_seconds: float) -> Controller[Any]:
    """A controller in units of work (seconds of nominal CPU) for batches of this period.

    Queue laws keep their papers' proportions: the queue may hold two periods of work, so that half full is one batch.
    """
    common: dict[str, object] = {"nominal": period_seconds, "floor": LEAST_SCALE * period_seconds}
    limit = 2.0 * period_seconds
    unit = limit / PidConfig().queue_limit
    options: Mapping[str, Mapping[str, object]] = {
        "batch": {"target_seconds": target_seconds, "cost_guess": 1.0},
        "latency": {"target_seconds": target_seconds, "tick_seconds": period_seconds, "delay_ticks": 2.0},
        "aurora": {"target_seconds": target_seconds, "tick_seconds": period_seconds},
        "tu": {"target_seconds": target_seconds, "period_seconds": period_seconds},
        "pid": {
            "queue_limit": limit,
            **{gain: unit * getattr(PidConfig(), gain) for gain in ("k_p", "k_i", "k_d")},
        },
        "red": {
            "min_threshold": unit * RedConfig().min_threshold,
            "max_threshold": unit * RedConfig().max_threshold,
        },
    }
    return make_controller(name, **common, **options.get(name, {}))


def _work(cost: Mapping[str, float], tuples: Mapping[str, int]) -> float:
    return sum(cost.get(name, 0.0) * count for name, count in tuples.items())


def _ppm(keep: float) -> int:
    return max(0, min(PPM, round(keep * PPM)))
