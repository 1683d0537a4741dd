"""The tuples of a simulated run as columns: generation, arrival, queue (which has the deadline) and true cost.

>>> rng = np.random.default_rng(1)
>>> tuples = draw(np.array([0.0, 0.1, 0.2]), rng, mean_cost_seconds=0.005)
>>> len(tuples), float(tuples.cost.max())
(3, 0.005)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.buffering.queues import QueueClass
from floodway.errors import InputError

Floats = NDArray[np.float64]

PAPER_CLASSES = tuple(QueueClass("s", deadline) for deadline in (0.25, 0.5, 1.0, 2.0))
"""The paper's tuple delays, drawn with equal chance."""
TRANSMISSION_SECONDS = 0.02
"""Longest time from source to buffer. The paper gives none; small beside the least deadline of 0.25 s."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """Columns of equal length, in order of arrival; `queue` indexes `classes`. Times and costs in seconds."""

    arrived: Floats
    generated: Floats
    queue: NDArray[np.int64]
    cost: Floats
    classes: tuple[QueueClass, ...]

    def __post_init__(self) -> None:
        if np.any(np.diff(self.arrived) < 0):
            raise InputError("tuples are not in order of arrival", hint="Sort them by arrival time")

    def __len__(self) -> int:
        return len(self.arrived)


def draw(
    arrived: Floats,
    rng: np.random.Generator,
    *,
    mean_cost_seconds: float,
    classes: Sequence[QueueClass] = PAPER_CLASSES,
    precision: int = 0,
    transmission_seconds: float = TRANSMISSION_SECONDS,
) -> Tuples:
    """Give arrivals a deadline class, a generation time and a true cost.

    `precision` is the paper's E, how far true costs spread around their mean ET_p (section 5.1): 0 none, 1 uniform on
    [0.3, 1.7], 2 on [0.1, 4.1] times the mean. The last cannot be uniform and have mean 1; see experiments/NOTES.md.
    """
    count = len(arrived)
    return Tuples(
        arrived=arrived,
        generated=arrived - rng.uniform(0.0, transmission_seconds, count),
        queue=rng.integers(len(classes), size=count),
        cost=mean_cost_seconds * cost_factors(precision, count, rng),
        classes=tuple(classes),
    )


def cost_factors(precision: int, count: int, rng: np.random.Generator) -> Floats:
    """True cost over mean cost, mean 1, for E = 0, 1 or 2."""
    if precision == 0:
        return np.ones(count)
    if precision == 1:
        return rng.uniform(0.3, 1.7, count)
    if precision == 2:
        # Beta on [0.1, 4.1] with mean 0.225 of the width, that is 1; its two shapes add up to 4.
        return 0.1 + 4.0 * rng.beta(0.9, 3.1, count)
    raise InputError(f"cost precision E = {precision}", hint="The paper knows E = 0, 1 and 2")
