"""What an overloaded participant drops. It plans as a node does; partners are asked first, tuples are dropped last.

The fragments that run here are chains on one node (`contracts/member_network.py`). Each has a controller that follows
its batches; the smallest capacity that the controllers report, at most the member's `cpu`, goes to the planner
(`agent/loop/steering.py`). It keeps the tuples that are worth most:

    weight of a tuple = value · cost         cost: CPU-seconds per tuple, value: per CPU-second, in the unit of prices
    value = price + penalty                  of a partner's fragment: what is earned, and what dropping would cost
    value = weight in the federation file    of an own one; else the highest price in this member's contracts

An overload may last for `patience_seconds`, and for as long as an offer is open or a move under way, before tuples are
dropped for it. Dropping ends at once when the load fits again, or when a move has taken enough away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from floodway.agent.federation.engine import Measure
from floodway.agent.loop.steering import FragmentBatch, Steered, Steering
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.member_network import member_network
from floodway.contracts.participant_state import Participant
from floodway.control.loop import Patience
from floodway.job.decision import JobDecision, Mode, StreamDecision, named
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.model import Network, Node
from floodway.spark.query.moving_fragment import moving_fragment
from floodway.units import PPM

TARGET_SECONDS = 10.0
"""The latency target where neither an option nor a service that is owed gives one."""
LEAST_COST = 1e-9
REMARKABLE = 0.05
"""Costs that move by less than this share are planned with as they were."""


@dataclass(frozen=True, slots=True)
class Shed:
    """The decision for the coming batches, and the share kept of each fragment that is not kept whole.

    `steered` is the plan as far as it is carried out, for the fragments as the `network`; None without any.
    """

    decision: JobDecision
    keeps: Mapping[str, float] = field(default_factory=dict)
    steered: Steered | None = None
    network: Network | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)


class MemberSteering:
    """The state of one participant's decisions: a controller for each fragment that runs here, and one planner."""

    def __init__(self, node: Node, options: JobOptions, *, target_seconds: float, patience_seconds: float) -> None:
        self.target_seconds = target_seconds
        self._node = node
        self._options = options
        self._patience = Patience(patience_seconds)
        self._steering: Steering | None = None
        self._planned: Network | None = None
        self._warm: set[str] = set()

    def observe(self, now: float, batches: Iterable[FragmentBatch], measures: Mapping[str, Measure]) -> None:
        """Feed batches that have ended since the last call to the controllers of their fragments."""
        waiting = _waiting(measures)
        for batch in batches:
            known = self._planned is not None and batch.fragment in self._planned.outputs
            # The first batch that holds anything starts workers and compiles plans: it says nothing about later ones.
            if known and self._steering is not None and batch.fragment in self._warm:
                self._steering.observe(now, batch, waiting)
            if any(batch.kept.values()):
                self._warm.add(batch.fragment)

    def decide(
        self,
        now: float,
        specs: Iterable[FragmentSpec],
        values: Mapping[str, float],
        measures: Mapping[str, Measure],
        *,
        asking: bool,
        mode: Mode,
    ) -> Shed:
        """What to drop of the fragments that were measured.

        `now` is monotonic; `asking` says that an offer is open or a move under way.
        """
        here = [spec for spec in specs if spec.name in measures]
        self._warm &= {spec.name for spec in here}
        if not here:
            self._steering = self._planned = None
            self._patience.held(now, overloaded=False)
            return Shed(named(JobDecision(mode=mode)))
        steering = self._plan(here, values, measures)
        rates = {at: rate for one in measures.values() for at, rate in one.rates.items()}
        waiting = _waiting(measures)
        waits = {at: count / steering.period_seconds for at, count in waiting.items()}
        demand = {at: max(rate, waits.get(at, 0.0)) for at, rate in rates.items()}
        steered = steering.decide(rates, demand, mode, issued_us=0)
        self._patience.held(now, overloaded=bool(steered.plan.drops), asking=asking)
        keeps = dict(steered.plan.keeps) if self._patience.dropping else {}
        # By share and not by budget: the trigger, not the work, says when a batch begins.
        streams = {at: StreamDecision(round(keeps.get(at, 1.0) * PPM)) for at in rates}
        decision = named(replace(steered.decision, streams=streams))
        dropping = keeps if mode == "enforce" else {}
        carried_out = replace(steered, decision=decision, plan=replace(steered.plan, keeps=keeps))
        return Shed(decision, _by_fragment(here, measures, dropping), carried_out, self._planned, waiting)

    def _plan(
        self, specs: list[FragmentSpec], values: Mapping[str, float], measures: Mapping[str, Measure]
    ) -> Steering:
        """The steering for these fragments: that of before, unless fragments, costs or values have changed."""
        costs = {spec.name: max(measures[spec.name].cost, LEAST_COST) for spec in specs}
        weights = {name: values.get(name, 1.0) * cost for name, cost in costs.items()}
        network = member_network(specs, self._node, costs=costs, weights=weights)
        if self._steering is not None and self._planned is not None and not _has_changed(self._planned, network):
            return self._steering
        options, before = self._options, self._steering
        fragments = {spec.name: moving_fragment(spec, self._node.name) for spec in specs}
        target = Target(self.target_seconds, options.target.quantile if options.target else None)
        self._steering = Steering(options.planner_of(network), fragments, target, options, most_scale=1.0)
        if before is not None:
            self._steering.take_over(before)
        self._planned = network
        return self._steering


def values_of(machine: Participant, specs: Mapping[str, FragmentSpec]) -> dict[str, float]:
    """What a CPU-second of each fragment that runs here is worth, in the unit of prices."""
    contracts = (*machine.gives_to.values(), *machine.takes_from.values())
    highest = max((contract.max_price for contract in contracts), default=1.0)
    found = {}
    for name, held in machine.holdings.items():
        if held.contract is None:
            weight = specs[name].weight
            found[name] = highest if weight is None else weight
        else:
            service = held.contract.service
            found[name] = held.price + (0.0 if service is None else service.penalty)
    return found


def target_of(machine: Participant, given: float | None) -> float:
    """The latency target: the option, else the strictest delay that a contract of this taker allows, else 10 s."""
    services = (contract.service for contract in machine.takes_from.values())
    allowed = [service.max_delay_seconds for service in services if service is not None]
    return given if given is not None else min(allowed, default=TARGET_SECONDS)


def _waiting(measures: Mapping[str, Measure]) -> dict[str, int]:
    return {at: count for one in measures.values() for at, count in one.waiting.items()}


def _has_changed(old: Network, new: Network) -> bool:
    if list(old.operators) != list(new.operators):
        return True
    costs = ((old.operators[name].cost or 0.0, one.cost or 0.0) for name, one in new.operators.items())
    weights = ((old.outputs[name].weight, one.weight) for name, one in new.outputs.items())
    return any(abs(after - before) > REMARKABLE * before for before, after in (*costs, *weights))


def _by_fragment(
    specs: Iterable[FragmentSpec], measures: Mapping[str, Measure], keeps: Mapping[str, float]
) -> dict[str, float]:
    """The share kept of what arrives for each fragment, those left out that are kept whole."""
    found = {}
    for spec in specs:
        one = measures[spec.name]
        kept = sum(rate * keeps.get(at, 1.0) for at, rate in one.rates.items())
        share = kept / one.rate if one.rate > 0 else 1.0
        if share < 1.0:
            found[spec.name] = share
    return found
