"""Where to drop when windows are dropped whole: the plan with the most windows, which is not the one with most tuples.

Where windows overlap, a share p of them needs a larger share f(p) of the tuples (`window_keeps.py`), so the windows per
tuple kept are fewest in between: half of the tuples of each of two streams with windows of 10 s by 5 s hold 29% of the
windows, those of one stream alone hold 50%. What is earned is convex in the tuples that are kept, and no linear program
has its maximum. But whatever a planner answers at lower rates can be carried out at the rates there are, by dropping
the difference first. So any planner is asked again, at rates where

1. a stream that it cut, and whose windows overlap, is left out,
2. others are held back just so far that this stream is kept whole, or
3. a stream that was held back gets the room that is left,

until no such step earns more. What was decided about the branches of a split is then traded in the same way
(`window_trades.py`). Each step is a feasible plan; none is worse than the planner's own. The last choice stays while it
earns all but 5% of the best: the papers' prototype ignored changes of drops as small as that, and a choice that goes
to and fro keeps parts of windows of both streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodway.network.flow import Rates, flows
from floodway.network.model import Arc, Network
from floodway.network.part import whole_location
from floodway.planning.plan import Plan
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_keeps import CHANGE, passed_share
from floodway.planning.windows.window_shapes import common_keeps, merged_streams, windowed_plan
from floodway.planning.windows.window_trades import Trade, taken, traded, trades

Ask = Callable[[Rates], Plan]
"""A planner's answer at rates (tuples/s) by stream."""

_BETTER = 1.0 + 1e-6
_WHOLE = 1.0 - 1e-6
_STEPS = 6
"""Halvings in the search for how far a stream must be held back: what it keeps too little is below 2%."""


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A plan for the rates there are and what its windows earn: of shares of the streams, and trades after that."""

    plan: Plan
    shares: Mapping[str, float]
    worth: float
    trades: tuple[Trade, ...] = ()


@dataclass(frozen=True)
class WindowChooser:
    """Chooses for one network: `shapes` are the windows of its drop locations.

    `capacity` is the share of the nodes' CPU that may be used. A node that plans for those below it has a part of the
    `whole` network, and what a plan earns, and takes of nodes below, is counted there.
    """

    network: Network
    shapes: Mapping[str, WindowShape]
    whole: Network | None = None
    capacity: float = 1.0
    groups: Sequence[frozenset[str]] = field(init=False)
    placed: Mapping[str, WindowShape] = field(init=False)
    traded: Sequence[str] = field(init=False)
    """The locations that trade: all that go by windows, where those of a branch overlap."""

    def __post_init__(self) -> None:
        merged = merged_streams(self.network)
        single = [frozenset((name,)) for name in self.network.streams if not any(name in group for group in merged)]
        object.__setattr__(self, "groups", (*map(frozenset, merged), *single))
        placed = {name: shape for at, shape in self.shapes.items() for name in self._names(at)}
        object.__setattr__(self, "placed", placed)
        branches = [at for at in self.shapes if at not in self.network.streams]
        own = [at for at in self.network.drop_locations if at in self.shapes]
        object.__setattr__(self, "traded", own if any(map(self._overlap, branches)) else ())

    @property
    def chooses(self) -> bool:
        """Whether any windows overlap that are dropped before a stream, or a branch, is read."""
        return bool(self.traded) or any(self._overlaps(group) for group in self.groups)

    def choose(self, ask: Ask, rates: Rates, before: WindowChoice | None = None) -> WindowChoice:
        """The best plan that was found; `before` is the choice in force."""
        best = first = self._try(ask, rates, dict.fromkeys(rates, 1.0))
        if not first.plan.drops:
            return first
        for _ in range(2 * len(self.groups)):
            found = max(self._steps(ask, rates, best), key=lambda choice: choice.worth, default=best)
            if found.worth <= best.worth * _BETTER:
                break
            best = found
        for _ in range(2 * len(self.traded)):
            found = max(self._trades(best), key=lambda choice: choice.worth, default=best)
            if found.worth <= best.worth * _BETTER:
                break
            best = found
        if before is not None:
            held = self.again(ask, rates, before)
            if held.worth >= (1.0 - CHANGE) * best.worth:
                return held
        return best

    def again(self, ask: Ask, rates: Rates, before: WindowChoice) -> WindowChoice:
        """The plan for other rates with the shares and trades of an earlier choice."""
        found = self._try(ask, rates, {name: before.shares.get(name, 1.0) for name in rates})
        for trade in before.trades if found.plan.drops else ():
            found = self._after(found, trade)
        return replace(found, trades=before.trades)

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
        return WindowChoice(plan, shares, self._worth(plan))

    def _trades(self, now: WindowChoice) -> Iterator[WindowChoice]:
        for trade in trades(now.plan.keeps, self.traded, tuple(self.network.streams)):
            yield self._after(now, trade)

    def _after(self, now: WindowChoice, trade: Trade) -> WindowChoice:
        plan = traded(now.plan, trade, self._use, [self.capacity * node.cpu for node in self.network.nodes.values()])
        return WindowChoice(plan, now.shares, self._worth(plan), (*now.trades, trade))

    def _worth(self, plan: Plan) -> float:
        whole, placed = self.whole or self.network, self.placed
        return windowed_plan(whole, plan if self.whole is None else self._in_whole(plan), placed).score

    def _use(self, plan: Plan) -> list[float]:
        own = taken(flows(self.network, plan.rates, common_keeps(self.network, plan.keeps)), self.network.nodes)
        if self.whole is None:
            return own
        there = self._in_whole(plan)
        below = flows(self.whole, there.rates, common_keeps(self.whole, there.keeps))
        return own + taken(below, [name for name in self.whole.nodes if name not in self.network.nodes])

    def _in_whole(self, plan: Plan) -> Plan:
        """The part's keeps at the places of the whole network, of its own streams."""
        rates = {name: plan.rates.get(name, 0.0) for name in (self.whole or self.network).streams}
        keeps = {name: keep for at, keep in plan.keeps.items() for name in self._names(at)}
        return replace(plan, rates=rates, keeps=keeps)

    def _names(self, at: str) -> tuple[str, ...]:
        """The drop locations of the whole network that one of a part is: branches of a stream that others read too."""
        part, whole = self.network, self.whole
        if whole is None:
            return (at,)
        if at in whole.streams and len(part.consumers[at]) < len(whole.consumers[at]):
            return tuple(str(Arc(at, consumer)) for consumer in part.consumers[at])
        return (whole_location(part, at),)

    def _overlaps(self, group: frozenset[str]) -> bool:
        """Whether the windows of a group overlap; a stream that is cut on its branches only is no matter of rates."""
        return any(name in self.shapes and self._overlap(name) for name in group)

    def _overlap(self, at: str) -> bool:
        return passed_share(self.shapes[at], 0.5) > 0.5

    def _keep(self, plan: Plan, group: frozenset[str]) -> float:
        keeps = common_keeps(self.network, plan.keeps)
        return min(keeps.get(name, 1.0) for name in group)
