"""Until capacity comes: drops are held back while an overload is young, and executors are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodway.agent.loop.steering import Steered
from floodway.control.loop import Efficiency, Patience
from floodway.job.decision import JobDecision, StreamDecision, named
from floodway.job.status.parts import held_reason
from floodway.units import PPM

if TYPE_CHECKING:
    from floodway.spark.shed.executors import ExecutorRequests


@dataclass
class CapacityWait:
    """Holds drops back while an overload is young; with `executors` it asks for more."""

    patience: Patience = field(default_factory=lambda: Patience(0.0))
    executors: ExecutorRequests | None = None
    reason: str | None = None
    """Why nothing is dropped though more waits than fits; None where nothing is held back."""

    efficiency: Efficiency = field(default_factory=Efficiency)

    def take(self, steered: Steered, capacity_needed: float, now_seconds: float) -> Steered:
        """What was decided, or while the overload is young the same without drops."""
        self.reason = None
        if self.executors is not None:
            self.executors.take(capacity_needed, now_seconds, self.efficiency.measured)
        held = self.patience.held(now_seconds, overloaded=_drops(steered.decision))
        if held is None:
            return steered
        self.reason = held_reason(held, self.patience.seconds)
        plan = replace(steered.plan, keeps=dict.fromkeys(steered.plan.keeps, 1.0))
        return replace(steered, plan=plan, decision=named(_whole(steered.decision)))


def _drops(decision: JobDecision) -> bool:
    streams = decision.streams.values()
    return any(one.keep_ppm < PPM or one.budget is not None for one in streams) or any(
        keep_ppm < PPM for keep_ppm in decision.arcs.values()
    )


def _whole(decision: JobDecision) -> JobDecision:
    """The decision without drops for lack of capacity; what is skipped for its age or number still is."""
    streams = {
        at: StreamDecision(max_age_us=one.max_age_us, most_waiting=one.most_waiting)
        for at, one in decision.streams.items()
    }
    return replace(decision, streams=streams, arcs={})
