"""Classes of queries in one job: parts of a network that share neither node nor stream, each under a target of its own.

A class is steered by itself: it has its controllers, the capacity that these find, its backlog and its batch period.
The planner is one. A plan for the capacity of one class is right for the drops of that class, because constraints of
different classes have no flow in common; so every class looks up its own, and the decision is put together of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodway.agent.loop.backlog import Backlog
from floodway.agent.loop.batch_figures import reason_of
from floodway.agent.loop.steering import FragmentBatch, Steered, Steering
from floodway.control.base import Decision
from floodway.job.decision import Mode, named
from floodway.job.options.values import Target
from floodway.network.flow import flows
from floodway.network.model import Network
from floodway.planning.plan import Plan, Planner
from floodway.spark.query.fragments import Fragment
from floodway.spark.query.journal import JournaledBatch

Demand = Callable[[float, Steering], Mapping[str, float]]
"""(seconds since 1970, who steers) -> tuples/s that the next batches have to carry."""


def classes_of(fragments: Mapping[str, Fragment]) -> list[dict[str, Fragment]]:
    """The fragments in groups that share no node and no stream and do not feed each other."""
    groups: list[tuple[set[str], dict[str, Fragment]]] = []
    for query, fragment in fragments.items():
        touched = {f"node {fragment.node}", *(f"stream {spec.producer}" for spec in fragment.sources)}
        # What a fragment reads of another one is named by the operator that made it.
        touched |= {f"stream {name}" for name in fragment.operators}
        members = {query: fragment}
        for other in [group for group in groups if group[0] & touched]:
            groups.remove(other)
            touched |= other[0]
            members = {**other[1], **members}
        groups.append((touched, members))
    return [members for _, members in groups]


def by_target(
    fragments: Mapping[str, Fragment], target: Callable[[Collection[str]], Target]
) -> list[tuple[Target, dict[str, Fragment]]]:
    """The classes with their targets, that of their outputs; those under the same target are steered together."""
    found: dict[Target, dict[str, Fragment]] = {}
    for members in classes_of(fragments):
        outputs = [name for fragment in members.values() for name in fragment.outputs]
        found.setdefault(target(outputs), {}).update(members)
    return [(target, {query: fragments[query] for query in fragments if query in own}) for target, own in found.items()]


@dataclass(frozen=True, slots=True)
class _Class:
    steering: Steering
    backlog: Backlog
    fragments: Mapping[str, Fragment]

    @property
    def streams(self) -> set[str]:
        """What its fragments read that comes from outside."""
        sources = (spec for fragment in self.fragments.values() for spec in fragment.sources)
        return {spec.producer for spec in sources if spec.producer in self.steering.network.streams}

    def owns(self, at: str) -> bool:
        """Whether a drop location is of this class."""
        producer = at.partition("->")[0] if at not in self.steering.network.streams else at
        return producer in self.streams or any(producer in one.operators for one in self.fragments.values())


class Classes:
    """All classes of a job, as the loop that steers sees them."""

    def __init__(
        self, network: Network, steerings: Sequence[Steering], delivered_every: Mapping[str, float] | None = None
    ) -> None:
        self._network = network
        self._all = [
            _Class(one, Backlog(network, one.fragments, delivered_every or {}), one.fragments) for one in steerings
        ]
        self._of = {query: one for one in self._all for query in one.fragments}
        self._last: list[Steered] = []

    @property
    def first(self) -> Steering:
        """The only one, for what cannot be had with several."""
        return self._all[0].steering

    @property
    def control(self) -> dict[str, Decision]:
        """What the controllers said last, by query."""
        return {query: found for one in self._all for query, found in one.steering.control.items()}

    @property
    def lossless(self) -> bool:
        """Whether nothing is dropped."""
        return self.first.lossless

    def scale(self, query: str) -> float:
        """The share of the nominal capacity that is planned for in the class of a query."""
        return self._of[query].steering.scale

    def plan_with(self, planner: Planner) -> None:
        """From now on plan with this planner."""
        for one in self._all:
            one.steering.plan_with(planner)

    def cut(self, query: str, journal: JournaledBatch, now: float) -> None:
        """A batch was cut just now."""
        self._of[query].backlog.cut(query, journal, now)

    def ended(self, query: str, batch_seconds: float) -> None:
        """A batch ended."""
        self._of[query].backlog.ended(query, batch_seconds)

    def observe(self, now: float, batch: FragmentBatch, arrived: Mapping[str, int]) -> None:
        """Feed one finished batch to its class."""
        one = self._of[batch.fragment]
        one.steering.observe(now, batch, one.backlog.waiting(arrived))

    def idle(self, arrived: Mapping[str, int]) -> bool:
        """Whether nothing waits and no batch is under way."""
        return all(one.backlog.idle({name: arrived[name] for name in one.streams}) for one in self._all)

    def waiting(self, arrived: Mapping[str, int]) -> dict[str, int]:
        """Tuples of each stream that no batch has taken yet."""
        found = dict.fromkeys(arrived, 0)
        for one in self._all:
            own = one.backlog.waiting(arrived)
            found.update({name: own[name] for name in one.streams})
        return found

    def catch_up_seconds(self, arrived: Mapping[str, int], rates: Mapping[str, float]) -> float | None:
        """When what waits will have been processed, in the slowest class; None: not at these rates."""
        found = [one.steering.catch_up_seconds(one.backlog.waiting(arrived), rates) for one in self._all]
        known = [seconds for seconds in found if seconds is not None]
        return max(known) if len(known) == len(found) else None

    def decide(
        self,
        now: float,
        arrived: Mapping[str, int],
        rates: Mapping[str, float],
        mode: Mode,
        issued_us: int,
        demand: Demand | None = None,
    ) -> Steered:
        """The decision for the coming batches of all classes; `demand` is a buffer's, else what waits and arrives."""
        self._last = []
        for one in self._all:
            steering = one.steering
            if demand is None:
                period, length = steering.period_seconds, steering.batch_seconds
                wanted: Mapping[str, float] = one.backlog.demand(now, arrived, rates, period, length)
            else:
                wanted = demand(now, steering)
            offered = one.backlog.offered(now, arrived, rates, steering.period_seconds)
            self._last.append(steering.decide(rates, wanted, mode, issued_us, offered))
        return self._last[0] if len(self._last) == 1 else self._joined(self._last)

    def reason(self) -> str:
        """Why the last decision keeps what it keeps, class by class."""
        found = []
        for one, steered in zip(self._all, self._last, strict=True):
            steering, rates = one.steering, steered.plan.rates
            if len(self._all) > 1:
                rates = {name: rate for name, rate in rates.items() if name in one.streams}
            own = replace(steered, plan=replace(steered.plan, rates=rates))
            text = reason_of(own, steering.period_seconds, steering.target_seconds)
            found.append(text if len(self._all) == 1 else f"{_names(one.fragments.values())}: {text}")
        return "; ".join(found)

    def _joined(self, parts: Sequence[Steered]) -> Steered:
        keeps: dict[str, float] = {}
        rates: dict[str, float] = {}
        arcs: dict[str, int] = {}
        for one, part in zip(self._all, parts, strict=True):
            keeps |= {at: keep for at, keep in part.plan.keeps.items() if one.owns(at)}
            rates |= {name: rate for name, rate in part.plan.rates.items() if name in one.streams}
            arcs |= {at: ppm for at, ppm in part.decision.arcs.items() if one.owns(at)}
        first = parts[0]
        streams = {at: decided for part in parts for at, decided in part.decision.streams.items()}
        flow = flows(self._network, rates, keeps)
        overloaded = any(part.plan.overloaded for part in parts)
        plan = Plan(rates, keeps, overloaded, flow.score, flow.load, flow.throughput)
        return replace(
            first,
            plan=plan,
            scale=min(part.scale for part in parts),
            scales={node: scale for part in parts for node, scale in part.scales.items()},
            decision=named(replace(first.decision, streams=streams, arcs=arcs)),
            control=self.control,
        )


def _names(fragments: Iterable[Fragment]) -> str:
    return ", ".join(name for fragment in fragments for name in fragment.outputs)
