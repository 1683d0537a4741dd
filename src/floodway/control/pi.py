"""PI on the deadline-miss ratio: how many tuples to pass to the query processor in the next cycle.

    e(k) = (m* - m) / m*        while m <= m*     in [0, 1]
    e(k) = (m* - m) / (1 - m*)  above             in [-1, 0)
    C(k) = C(k-1) (1 + K_P (e(k) - e(k-1)) + K_I e(k))

m is the share of results later than their deadline, m* the permitted share (0.01 in the paper). The paper names a PI
controller that turns the output's quality of service into C(k) (section 3) and gives neither law nor gains: the
velocity form, the error scaled to [-1, 1] on both sides and the gains are ours. The velocity form cannot wind up.
C is floored and capped at what waits. When less waits than C permits, C is held while the permitted share is kept,
and only ever lowered while it is not: deadlines missed at little load call for less, not for patience.

Zhou et al., Buffer-preposed QoS Adaptation Framework, section 3.
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
from floodway.control.latency import LARGEST_FACTOR, SMALLEST_FACTOR


@dataclass(frozen=True, slots=True)
class PiConfig:
    """`permitted_miss_ratio` is m* in (0, 1); `nominal` is the C at which g = 1, and C's start."""

    permitted_miss_ratio: float = 0.01
    k_p: float = 0.05
    k_i: float = 0.1
    floor: float = 1.0
    nominal: float | None = None

    def __post_init__(self) -> None:
        within("pi.permitted_miss_ratio", self.permitted_miss_ratio, 1e-9, 1.0 - 1e-9)
        within("pi.k_p", self.k_p, 0.0, 1.0)
        within("pi.k_i", self.k_i, 0.0, 1.0)
        positive("pi.floor", self.floor)
        optional_positive("pi.nominal", self.nominal)


@dataclass(frozen=True, slots=True)
class PiState(State):
    """C in units of work (None before the first miss), the C at which g = 1, and e(k-1)."""

    admit: float | None = None
    nominal: float | None = None
    last_error: float | None = None


def miss_error(miss_ratio: float, permitted: float) -> float:
    """How far the miss ratio is from the permitted one, scaled to [-1, 1].

    >>> miss_error(0.0, 0.01), miss_error(0.01, 0.01), miss_error(1.0, 0.01)
    (1.0, 0.0, -1.0)
    """
    gap = permitted - miss_ratio
    return clamp(gap / permitted if gap >= 0.0 else gap / (1.0 - permitted), -1.0, 1.0)


@dataclass(frozen=True, slots=True)
class PiController(Controller[PiState]):
    """Tuples admitted per cycle from the deadline-miss ratio of the last one."""

    config: PiConfig = PiConfig()
    name: ClassVar[str] = "pi"
    signal: ClassVar[str] = "miss_ratio"

    def initial(self) -> PiState:
        return PiState(self.config.nominal, self.config.nominal)

    def update(self, state: PiState, observation: Observation) -> tuple[PiState, Decision]:
        config, waiting, miss = self.config, observation.waiting, observation.miss_ratio
        if miss is None:
            return state, self._decide(state, waiting, "hold: no measurement")
        error = miss_error(miss, config.permitted_miss_ratio)
        if state.admit is None:
            if error >= 0.0 or waiting < config.floor:
                return state, self._decide(state, waiting, "admit all: no deadline missed yet")
            state = PiState(waiting, state.nominal or waiting, None)
        elif waiting < state.admit and error >= 0.0:
            return state, self._decide(state, waiting, "hold: not overloaded")
        before = error if state.last_error is None else state.last_error
        factor = 1.0 + config.k_p * (error - before) + config.k_i * error
        work = (state.admit or waiting) * clamp(factor, SMALLEST_FACTOR, LARGEST_FACTOR)
        # Capped at what waits, but a quiet moment with late results must not shrink C to the little that waits then.
        most = max(waiting, state.admit or 0.0)
        state = PiState(bounded(work, config.floor, most), state.nominal, error)
        reason = f"miss ratio {miss:.4f}, permitted {config.permitted_miss_ratio:g}"
        return state, self._decide(state, waiting, reason)

    def _decide(self, state: PiState, waiting: float, reason: str) -> Decision:
        if state.admit is None:
            return Decision(waiting, 1.0, reason)
        scale = state.admit / state.nominal if state.nominal else 1.0
        return Decision(bounded(state.admit, self.config.floor, waiting), scale, reason)
