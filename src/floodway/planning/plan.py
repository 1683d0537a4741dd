"""What every planner shares: the plan it returns and the one interface, `plan(rates) -> Plan`.

A planner only has to answer `lookup(rates) -> keeps` on vectors, for the nominal capacity. Everything else (not
overloaded: drop nothing; another capacity: scale rates; loads, throughput and score of the answer) is done here once.

A scale is one of CPU: constraints read A·y <= ζ, so y(r, g·ζ) = g·y(r/g, ζ), and a scaled capacity is a look-up at r/g;
keeps, being ratios, need no scaling back. Links and memory are what they are whatever the CPU does. Where a network has
limits of these, a look-up at r/g is one in a program whose links and memory are g times smaller.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from floodway.errors import InputError
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.program import Program

Vector = NDArray[np.float64]
_NOTHING = 1e-15
"""A keep below this is 0: what remains of it is rounding."""
_STEP = 0.02
"""Programs for another CPU are made for scales this far apart: up to so much of a link or a memory is left unused."""
_HELD = 32


class Objective(StrEnum):
    """What a plan maximises: weighted throughput (the papers'), the worst-off output, or strict tiers."""

    THROUGHPUT = "throughput"
    FAIR = "fair"
    TIERS = "tiers"


@dataclass(frozen=True, slots=True)
class Plan:
    """Keeps per drop location and what follows from them at the rates they were planned for.

    `ties` are groups of drop locations whose tuples earn the same for what they take, so that another division among
    them would have been as good; the exact planner divides evenly.
    """

    rates: Mapping[str, float]
    keeps: Mapping[str, float]
    overloaded: bool
    score: float
    load: Mapping[str, float]
    throughput: Mapping[str, float]
    ties: tuple[tuple[str, ...], ...] = ()

    @property
    def drops(self) -> dict[str, float]:
        """The keeps that really drop something."""
        return {at: keep for at, keep in self.keeps.items() if keep < 1.0}


class Planner(ABC):
    """One way to choose drops. Subclasses prepare in their constructor and answer `lookup`."""

    name: str
    objective: Objective = Objective.THROUGHPUT

    def __init__(self, program: Program) -> None:
        self.program = program
        self._scaled: OrderedDict[int, Planner] = OrderedDict()

    @property
    def network(self) -> Network:
        """The network that is planned for."""
        return self.program.network

    @abstractmethod
    def lookup(self, rates: Vector) -> Vector:
        """Keeps in the order of `network.drop_locations`, for overloaded rates in the order of `network.streams`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows or regions held."""

    def ties(self, rates: Vector) -> tuple[tuple[str, ...], ...]:
        """Groups of drop locations between which the choice is arbitrary, as far as the planner knows."""
        return ()

    def keeps(self, rates: Vector, scale: float = 1.0) -> Vector:
        """Keeps for any rates at `scale` times the nominal CPU; all ones where nothing is overloaded."""
        planner, nominal = (self, rates) if scale == 1.0 else (self.at_scale(scale), rates / scale)
        if not planner.program.overloaded(nominal):
            return np.ones(len(self.network.drop_locations))
        return planner.lookup(nominal)

    def at_scale(self, scale: float) -> Planner:
        """Who answers at rates/scale: this planner, or one of a program whose links and memory are so much smaller."""
        if not self.program.has_fixed_resources or scale == 1.0:
            return self
        step = math.ceil(math.log(scale) / _STEP - 1e-9)
        found = self._scaled.get(step)
        if found is None:
            found = self._scaled[step] = self.of_program(self.program.scaled(fixed=math.exp(-_STEP * step)))
        self._scaled.move_to_end(step)
        if len(self._scaled) > _HELD:
            self._scaled.popitem(last=False)
        return found

    def of_program(self, program: Program) -> Planner:
        """A planner for the same objective that needs no preparation, of another program."""
        from floodway.planning.exact import ExactPlanner  # it is a planner

        return ExactPlanner(program)

    def plan(self, rates: Mapping[str, float], scale: float = 1.0) -> Plan:
        """The plan for these rates (tuples/s) at `scale` times the nominal CPU."""
        if not (np.isfinite(scale) and scale > 0):
            raise InputError(f"capacity scale {scale} is not a positive number", hint="Use 1 for the nominal capacity")
        vector = np.array([rates[name] for name in self.network.streams], dtype=np.float64)
        shares = zip(self.network.drop_locations, self.keeps(vector, scale).tolist(), strict=True)
        keeps = {at: keep if keep > _NOTHING else 0.0 for at, keep in shares}
        flow = flows(self.network, rates, keeps)
        planner = self.at_scale(scale)
        overloaded = planner.program.overloaded(vector / scale)
        tied = planner.ties(vector / scale) if overloaded else ()
        return Plan(
            rates=dict(rates),
            keeps=keeps,
            overloaded=overloaded,
            score=flow.score,
            load=flow.load,
            throughput=flow.throughput,
            ties=tuple(group for group in tied if any(keeps[at] < 1.0 for at in group)),
        )
