"""Where to drop when windows are dropped whole: the plan with the most windows, which is not the one with most tuples.

Where windows overlap, a share p of them needs a larger share f(p) of the tuples (`window_keeps.py`), so the windows per
tuple kept are fewest in between: half of the tuples of each of two streams with windows of 10 s by 5 s hold 29% of the
windows, those of one stream alone hold 50%. What is earned is convex in the tuples that are kept, and no linear program
has its maximum. But whatever a planner answers at lower rates can be carried out at the rates there are, by dropping
the difference first. So any planner is asked again, at rates where

1. a stream that it cut, and whose windows overlap, is left out,
2. others are held back just so far that this stream is kept whole, or
3. a stream that was held back gets the room that is left,

until no such step earns more. Each step is a feasible plan; none is worse than the planner's own. The last choice stays
while it earns all but 5% of the best: the papers' prototype ignored changes of drops as small as that, and a choice
that goes to and fro keeps parts of windows of both streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodway.network.flow import Rates
from floodway.network.model import Network
from floodway.planning.plan import Plan
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import CHANGE, passed_share
from floodway.planning.windows.window_shapes import common_keeps, merged_streams, windowed_plan

Ask = Callable[[Rates], Plan]
"""A planner's answer at rates (tuples/s) by stream."""

_BETTER = 1.0 + 1e-6
_WHOLE = 1.0 - 1e-6
_STEPS = 6
"""Halvings in the search for how far a stream must be held back: what it keeps too little is below 2%."""


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A plan for the rates there are, the shares of the streams that it was asked for, and what its windows earn."""

    plan: Plan
    shares: Mapping[str, float]
    worth: float


@dataclass(frozen=True)
class WindowChooser:
    """Chooses for one network: `shapes` are the windows of its drop locations, `worth` is what a plan earns.

    A node that plans for those below it gives its own `worth`: what its keeps earn in the whole network.
    """

    network: Network
    shapes: Mapping[str, WindowShape]
    worth: Callable[[Plan], float] | None = None
    groups: Sequence[frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        merged = merged_streams(self.network)
        single = [frozenset((name,)) for name in self.network.streams if not any(name in group for group in merged)]
        object.__setattr__(self, "groups", (*map(frozenset, merged), *single))

    @property
    def chooses(self) -> bool:
        """Whether any windows overlap that are dropped before a stream is read."""
        return any(self._overlaps(group) for group in self.groups)

    def choose(self, ask: Ask, rates: Rates, before: Mapping[str, float] | None = None) -> WindowChoice:
        """The best plan that was found; `before` are the shares of the choice in force."""
        best = first = self._try(ask, rates, dict.fromkeys(rates, 1.0))
        if not first.plan.drops:
            return first
        for _ in range(2 * len(self.groups)):
            found = max(self._steps(ask, rates, best), key=lambda choice: choice.worth, default=best)
            if found.worth <= best.worth * _BETTER:
                break
            best = found
        if before is not None:
            held = self.again(ask, rates, before)
            if held.worth >= (1.0 - CHANGE) * best.worth:
                return held
        return best

    def again(self, ask: Ask, rates: Rates, shares: Mapping[str, float]) -> WindowChoice:
        """The plan for other rates with the shares of an earlier choice."""
        return self._try(ask, rates, {name: shares.get(name, 1.0) for name in rates})

    def _steps(self, ask: Ask, rates: Rates, now: WindowChoice) -> Iterator[WindowChoice]:
        keeps = {group: self._keep(now.plan, group) for group in self.groups}
        for group, keep in keeps.items():
            others = [other for other in self.groups if other != group and keeps[other] > 0.0]
            if self._overlaps(group) and 0.0 < keep < _WHOLE:
                yield self._with(ask, rates, now, group, 0.0)
                # One after the other, and first those without which most is earned.
                without = {other: self._with(ask, rates, now, other, 0.0) for other in others}
                held = now
                for other in sorted(others, key=lambda one: without[one].worth, reverse=True):
                    yield self._most(ask, rates, now, other, {group: _WHOLE}, keeps[other])
                    yield (held := self._most(ask, rates, held, other, {group: _WHOLE}, keeps[other]))
            if any(now.shares[name] < 1.0 for name in group):
                yield self._most(ask, rates, now, group, {other: keeps[other] * _WHOLE for other in others}, 1.0)

    def _most(
        self,
        ask: Ask,
        rates: Rates,
        now: WindowChoice,
        group: frozenset[str],
        least: Mapping[frozenset[str], float],
        most: float,
    ) -> WindowChoice:
        """With as much of a group, up to a share, as leaves others their least keeps; with nothing if none does."""

        def leaves(choice: WindowChoice) -> bool:
            return all(self._keep(choice.plan, other) >= keep for other, keep in least.items())

        found, low, high = self._with(ask, rates, now, group, 0.0), 0.0, most
        if not leaves(found):
            return found
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            choice = self._with(ask, rates, now, group, middle)
            if leaves(choice):
                found, low = choice, middle
            else:
                high = middle
        return found

    def _with(self, ask: Ask, rates: Rates, now: WindowChoice, group: frozenset[str], share: float) -> WindowChoice:
        return self._try(ask, rates, {**now.shares, **dict.fromkeys(group, share)})

    def _try(self, ask: Ask, rates: Rates, shares: Mapping[str, float]) -> WindowChoice:
        plan = ask({name: shares[name] * rate for name, rate in rates.items()})
        keeps = {at: keep * shares.get(at, 1.0) for at, keep in plan.keeps.items()}
        ties = plan.ties if all(share == 1.0 for share in shares.values()) else ()
        plan = replace(plan, rates=dict(rates), keeps=keeps, ties=ties)
        if self.worth is not None:
            return WindowChoice(plan, shares, self.worth(plan))
        return WindowChoice(plan, shares, windowed_plan(self.network, plan, self.shapes).score)

    def _overlaps(self, group: frozenset[str]) -> bool:
        """Whether the windows of a group overlap; a stream that is cut on its branches only is no matter of rates."""
        return any(name in self.shapes and passed_share(self.shapes[name], 0.5) > 0.5 for name in group)

    def _keep(self, plan: Plan, group: frozenset[str]) -> float:
        keeps = common_keeps(self.network, plan.keeps)
        return min(keeps.get(name, 1.0) for name in group)
