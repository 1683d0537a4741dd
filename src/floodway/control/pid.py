"""PID on queue occupancy: shed so that the queue stays near a set share of its maximum length.

    e(k) = r - Y(k),  Y = queue / L
    X(k) = K_P e(k) + K_I sum_{j<=k} e(j) + K_D (e(k) - e(k-1))    wanted growth of the queue a period
    U(k) = 1 - (X(k) + C) / S,  clamped to [0, 1]                  share of arrivals to shed

S (arrived) and C (served) are those of the previous period. With K_P 30, K_I 18, K_D 7.5 and L = 150 the closed loop
has its poles at 0.839 ± 0.249i, modulus 0.875. Two guards are ours: S = 0 sheds nothing and changes nothing but the
last error, and the sum stops growing while U is clamped in that direction (anti-windup).

Zhou et al., Buffer-preposed QoS Adaptation Framework, section 4.2, equations (3) to (8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from floodway.control.base import (
    Controller,
    Decision,
    Observation,
    State,
    clamp,
    optional_positive,
    positive,
    shed,
    within,
)


@dataclass(frozen=True, slots=True)
class PidConfig:
    """Gains in tuples per unit of occupancy; `queue_limit` is L in tuples (or any unit of work).

    The poles depend on gains / L: for another queue length scale the gains with it.
    """

    k_p: float = 30.0
    k_i: float = 18.0
    k_d: float = 7.5
    reference: float = 0.5
    queue_limit: float = 150.0
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        for key in ("k_p", "k_i", "k_d"):
            within(f"pid.{key}", getattr(self, key), 0.0, 1e12)
        within("pid.reference", self.reference, 0.0, 1.0)
        positive("pid.queue_limit", self.queue_limit)
        positive("pid.floor", self.floor)
        optional_positive("pid.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class PidState(State):
    """Sum of errors, the last error (None before the first) and the shedding ratio in force."""

    error_sum: float = 0.0
    last_error: float | None = None
    drop_ratio: float = 0.0


def pid_step(config: PidConfig, state: PidState, *, queue: float, arrived: float, served: float) -> PidState:
    """One period of the law; the shedding ratio for the next period is `drop_ratio` of the result.

    `queue` is the length now, `arrived` and `served` the tuples that came and left in the period that has ended.

    >>> pid_step(PidConfig(), PidState(), queue=75, arrived=120, served=100).drop_ratio
    0.16666666666666663
    """
    error = config.reference - queue / config.queue_limit
    if arrived <= 0.0:
        return PidState(state.error_sum, error, 0.0)
    last = error if state.last_error is None else state.last_error
    error_sum = state.error_sum + error
    growth = config.k_p * error + config.k_i * error_sum + config.k_d * (error - last)
    ratio = 1.0 - (growth + served) / arrived
    # A positive error lowers the ratio: integrating it while the ratio is clamped at 0 would only wind
    # the sum up.
    winding_up = (ratio < 0.0 and error > 0.0) or (ratio > 1.0 and error < 0.0)
    return PidState(state.error_sum if winding_up else error_sum, error, clamp(ratio, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class PidController(Controller[PidState]):
    """The law as a controller: `offered` is S, `kept` is C, `queue` the occupancy; holds while `offered` is None."""

    config: PidConfig = PidConfig()
    name: ClassVar[str] = "pid"
    signal: ClassVar[str] = "offered"

    def initial(self) -> PidState:
        return PidState()

    def update(self, state: PidState, observation: Observation) -> tuple[PidState, Decision]:
        if observation.offered is None:
            reason = "hold: no measurement"
        else:
            state = pid_step(
                self.config,
                state,
                queue=observation.queue,
                arrived=observation.offered,
                served=observation.kept,
            )
            reason = f"shed {state.drop_ratio:.3f} at occupancy {observation.queue / self.config.queue_limit:.3f}"
        return state, shed(observation.waiting, state.drop_ratio, self.config.floor, self.config.nominal, reason)
