"""From the measures of fragments to the loads and the cost function that the contract machine reckons with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodway.agent.federation.engine import Measure
from floodway.agent.federation.negotiating import LEAST_UNITS
from floodway.contracts.cost import CostFunction, Learning
from floodway.contracts.federation_file import FragmentSpec, Member
from floodway.contracts.load import Load
from floodway.contracts.messages import Remeasured
from floodway.contracts.participant import Participant


class LoadMeter:
    """The loads of one member's fragments; where its cost is measured, also what they teach about it."""

    def __init__(self, member: Member, fragments: Mapping[str, FragmentSpec]) -> None:
        self._fragments = fragments
        self._learning = Learning(member.costs()) if member.cost == "measured" else None

    def remeasured(self, machine: Participant, measures: Mapping[str, Measure], *, dropping: bool) -> Remeasured:
        """What the machine should know of the fragments that it holds."""
        tasks = tuple(
            replace(held.task, load=self._load(name, found), units=max(found.cpu, LEAST_UNITS))
            for name, held in machine.holdings.items()
            if (found := measures.get(name)) is not None
        )
        return Remeasured(tasks, self._learnt(measures, dropping))

    def _load(self, fragment: str, found: Measure) -> Load:
        return Load(found.cpu, found.rate * self._fragments[fragment].bytes_per_tuple, found.rate)

    def _learnt(self, measures: Mapping[str, Measure], dropping: bool) -> CostFunction | None:
        """The cost with what these measures teach; None where it is not learnt."""
        if self._learning is None:
            return None
        # Where tuples are dropped, fewer are in flight than the load that arrives would bring.
        if not dropping:
            in_flight = sum(one.rate * one.delay_seconds for one in measures.values())
            self._learning = self._learning.seen(sum(one.cpu for one in measures.values()), in_flight)
        return self._learning.costs()
