"""Tu's control-based law (COB: control without a buffer): steer a queue's estimated delay by its growth.

    y(k) = q(k) c / H                                               estimated delay, seconds
    e(k) = T - y(k)
    u(k) = (H / (c P)) (b0 e(k) + b1 e(k-1)) - a u(k-1)             wanted growth of the queue, tuples/s
    v(k) = u(k) + f_out(k)                                          arrivals to let in, tuples/s

q is the queue, c the cost in seconds per tuple, H the share of the machine that does useful work, P the control
period and f_out the rate served in the last one. The queue integrates u, so the closed loop is z^2 + (a - 1 + b0) z +
(b1 - a) = 0; with b0 = 0.4, b1 = -0.31, a = -0.8 that is a double pole at 0.7: three periods to within a tenth or so,
no oscillation, whatever c and H are. After clamping v to [0, arrivals] the u that was really applied is remembered
instead of the wanted one (anti-windup, ours).

The baseline of Zhou et al., Buffer-preposed QoS Adaptation Framework, section 5.2. Its gains are a reconstruction:
the cited paper (Tu et al., Control-based Quality Adaptation, DEXA 2005) was not at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    Observation,
    State,
    bounded,
    clamp,
    optional_positive,
    positive,
    within,
)


@dataclass(frozen=True, slots=True)
class TuConfig:
    """Period and target in seconds; `smoothing` weighs the newest cost measurement (0.1 in section 5.1)."""

    target_seconds: float
    period_seconds: float = 1.0
    b0: float = 0.4
    b1: float = -0.31
    a: float = -0.8
    headroom: float = 0.97
    smoothing: float = 0.1
    cost_seconds: float | None = None
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        for key in ("target_seconds", "period_seconds", "headroom", "smoothing", "floor"):
            positive(f"tu.{key}", getattr(self, key))
        for key in ("headroom", "smoothing"):
            within(f"tu.{key}", getattr(self, key), 0.0, 1.0)
        for key in ("b0", "b1", "a"):
            within(f"tu.{key}", getattr(self, key), -1e6, 1e6)
        optional_positive("tu.cost_seconds", self.cost_seconds)
        optional_positive("tu.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class TuState(State):
    """Estimated cost c (seconds per unit of work), e(k-1), u(k-1), and the rate v now let in (None: all)."""

    cost: float | None = None
    last_error: float | None = None
    growth: float = 0.0
    allowed: float | None = None


def tu_growth(config: TuConfig, *, cost: float, error: float, last_error: float, growth: float) -> float:
    """u(k), the wanted growth of the queue in work/s, before any clamping.

    >>> round(tu_growth(TuConfig(1.0), cost=0.01, error=0.5, last_error=0.5, growth=0.0), 3)
    4.365
    """
    scale = config.headroom / (cost * config.period_seconds)
    return scale * (config.b0 * error + config.b1 * last_error) - config.a * growth


@dataclass(frozen=True, slots=True)
class TuController(Controller[TuState]):
    """The law as a controller: c from `batch_seconds / kept`, f_out from `kept`, q from `queue`.

    `waiting` is what arrived and asks to be let in. Without a queue of its own (`queued` None: micro-batches) the
    measured latency stands for y; an estimate from what waits would count a batch's overhead as cost per tuple, and
    shed ever more. Holds v when no batch, or neither queue nor latency, was measured.
    """

    config: TuConfig
    name: ClassVar[str] = "tu"
    signal: ClassVar[str] = "batch_seconds"

    def initial(self) -> TuState:
        return TuState(cost=self.config.cost_seconds)

    def update(self, state: TuState, observation: Observation) -> tuple[TuState, Decision]:
        config, waiting = self.config, observation.waiting
        cost = self._cost(state, observation)
        queued, delay = observation.queued, observation.latency_seconds
        if queued is not None and cost is not None:
            delay = queued * cost / config.headroom
        if observation.batch_seconds is None or cost is None or delay is None:
            return state, self._decide(state, waiting, "hold: no measurement")
        error = (observation.target_seconds or config.target_seconds) - delay
        last = error if state.last_error is None else state.last_error
        wanted = tu_growth(config, cost=cost, error=error, last_error=last, growth=state.growth)
        served = observation.kept / config.period_seconds
        allowed = clamp(wanted + served, 0.0, waiting / config.period_seconds)
        state = TuState(cost, error, allowed - served, allowed)
        reason = f"let in {allowed:.6g}/s at a delay of {delay:.3f} s"
        return state, self._decide(state, waiting, reason)

    def _cost(self, state: TuState, observation: Observation) -> float | None:
        if observation.batch is None:
            return state.cost
        seconds, work = observation.batch
        seen = seconds / work
        if state.cost is None:
            return seen
        return self.config.smoothing * seen + (1.0 - self.config.smoothing) * state.cost

    def _decide(self, state: TuState, waiting: float, reason: str) -> Decision:
        if state.allowed is None:
            return Decision(waiting, 1.0, reason)
        work = state.allowed * self.config.period_seconds
        admit = bounded(work, self.config.floor, waiting)
        share = admit / waiting if waiting > 0.0 else 1.0
        return Decision(admit, share if self.config.nominal is None else work / self.config.nominal, reason)
