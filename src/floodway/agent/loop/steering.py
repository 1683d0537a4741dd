"""From what was measured to what is dropped: controllers choose the capacity, the planner chooses the drops.

Every fragment has a controller of its own, in units of *work*: seconds that its node's nominal CPU would need. With
P* = T/1.5, the batch period that meets its share T of the target, a controller that admits n per batch says that the
node is worth g = n/P* of its nominal capacity. The plan is made for the smallest g; by scaling, a look-up at r/g.
A query that others feed is judged by its results' latency from their first arrival, less what the queries before it
were due to take: if those are late, it has less time, and shows it.

A stream that the plan keeps whole is not limited; one that it cuts gets a *budget* of keep·r·P* tuples a batch, so
that a batch holds the planned work however long the one before it took. One that drops by windows has no budget: a
window is kept or dropped as a whole, and the plan holds over several windows. On an input that another node writes,
drops below 10% are left out (the original prototype ignored small changes too): that node sheds for this one already,
and what it misjudges by so little is gone in the next batch or turns into a backlog that counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from floodway.agent.loop.stages import Stage, stages
from floodway.agent.loop.window_plans import window_plans
from floodway.control.base import BATCH_SHARE, Decision, Forecast, Observation
from floodway.control.loop import Loop
from floodway.control.registry import LEAST_SCALE, work_controller
from floodway.errors import InputError
from floodway.job.decision import JobDecision, Mode, StreamDecision, named
from floodway.job.options.options import JobOptions
from floodway.job.options.values import Target
from floodway.network.flow import Rates, flows
from floodway.network.model import Arc, Network
from floodway.planning.lossless import admitted_share, catch_up_seconds, fitting_rate
from floodway.planning.plan import Objective, Plan, Planner
from floodway.planning.windows.window_drop import WindowShape
from floodway.planning.windows.window_shapes import common_keeps
from floodway.spark.query.fragments import Fragment, SourceSpec
from floodway.units import PPM

IGNORED_DROP = 0.1
BINDING = 0.95
"""Share of a node's planned capacity from which on the node itself, and not another, is what limits the plan."""


ShareFactor = Callable[[Collection[str], float], float]
"""(operators of a query, seconds since 1970) -> what is left of its share of the target, in (0, 1]."""


def whole_share(operators: Collection[str], now_seconds: float) -> float:
    """For one process by itself: all of the share."""
    return 1.0


@dataclass(frozen=True, slots=True)
class FragmentBatch:
    """A finished batch as the controller sees it: counts by source, mean latency of its results in seconds.

    `latency_width_seconds` is how far the latencies lie apart, None where only their mean is known.
    """

    fragment: str
    offered: Mapping[str, int]
    kept: Mapping[str, int]
    batch_seconds: float
    latency_seconds: float | None
    arc_keeps: Mapping[str, float]
    latency_width_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Steered:
    """The plan in force (for the demand), arrival rates, the capacity planned for, and what the controllers said.

    `planner` and `objective` name who made the plan, and for what; `scales` are the capacities planned for by node.
    """

    plan: Plan
    rates: Mapping[str, float]
    scale: float
    decision: JobDecision
    control: Mapping[str, Decision]
    planner: str = ""
    objective: str = ""
    scales: Mapping[str, float] = field(default_factory=dict)


class Steering:
    """One node's (or one process's) loop state: a controller a fragment, one planner.

    A node among others gives the `places` of its fragments on the paths of the whole network, and `links`: its inputs
    that other nodes write. It then also tells apart whether its own capacity limits the plan or another node's.
    `share_factor` says what is left of the share of the target when results are late at outputs further down.
    `most_scale` bounds the capacity that is planned for, whatever the controllers find. `windowed` are the windows by
    place of drops that go by windows, `whole` is the network of which this is a part (the planner's own if left out).
    The controller, how streams drop, and what is skipped for its age or number, are of the job's `options`.
    """

    def __init__(
        self,
        planner: Planner,
        fragments: Mapping[str, Fragment],
        target: Target,
        options: JobOptions | None = None,
        *,
        salt: int = 0,
        places: Mapping[str, Stage] | None = None,
        links: Collection[str] = (),
        share_factor: ShareFactor = whole_share,
        most_scale: float = math.inf,
        windowed: Mapping[str, WindowShape] | None = None,
        whole: Network | None = None,
    ) -> None:
        options = options or JobOptions()
        target_seconds, quantile = target.seconds, target.quantile
        self.lossless = options.lossless
        max_age_us = None if options.max_age is None else round(options.max_age * 1e6)
        self._skipping = StreamDecision(max_age_us=max_age_us, most_waiting=options.skip_when_lag)
        if windowed and self._skipping != StreamDecision():
            raise InputError(
                "--max-age and --skip-when-lag would take a part of the tuples out of windows that are kept whole",
                hint="Leave them out, or leave out event_time, so that tuples are dropped one by one",
            )
        self._windowed = windowed or {}
        self._whole = whole or planner.network
        self.target_seconds = target_seconds
        self.planned_scale = 1.0
        """g at which the planner's own costs were given: look-ups are relative to it."""
        self.network: Network = planner.network
        """The network that is steered, with the costs that work is counted in."""
        self._planner = planner
        chosen = self._windowed if planner.objective is Objective.THROUGHPUT else {}
        self._window_plans = window_plans(planner.network, self._whole, chosen, links)
        self.fragments = fragments
        self._among_others = places is not None
        self._links = frozenset(links)
        self._places = places if places is not None else stages(fragments)
        self._use: dict[str, float] = {}
        self._share_factor = share_factor
        self._most_scale = most_scale
        share = {name: self._places[name].share_seconds(target_seconds) for name in fragments}
        ratio = target_seconds / target.mean_seconds
        self._period = {name: seconds / ratio / BATCH_SHARE for name, seconds in share.items()}
        heads = [name for name, f in fragments.items() if any(spec.location is not None for spec in f.sources)]
        self.period_seconds = min(self._period[name] for name in heads or fragments)
        self._salt = salt
        self._drop = options.drop
        laws = {
            name: work_controller(options.controller, share[name] / ratio, self.period_seconds) for name in fragments
        }
        if quantile is not None:
            from floodway.control.percentile import Percentile

            laws = {name: Percentile(law, quantile, share[name]) for name, law in laws.items()}
        self._loops = {name: Loop(law) for name, law in laws.items()}
        self.control: dict[str, Decision] = {}

    @property
    def scale(self) -> float:
        """g: the share of the nominal capacity that may be planned for now."""
        found = min((d.capacity_scale for d in self.control.values()), default=1.0)
        return max(min(found, self._most_scale), LEAST_SCALE)

    @property
    def batch_seconds(self) -> float:
        """How long the batches that are planned now are expected to take; P* where no controller has a model of it."""
        found = [forecast.seconds(work, work) for forecast, work in self._forecasts().values() if work > 0.0]
        return max(found, default=self.period_seconds)

    @property
    def sustained_scale(self) -> float:
        """The share of the nominal capacity that batches of at most P* do in the long run: their work over their time.

        Where latency asks for shorter batches than P*, for those. Where it leaves room for longer ones, not for those:
        the room is what others on the path leave today, and whoever is told of more capacity would use it up.
        """
        found = []
        for name, (forecast, work) in self._forecasts().items():
            full = min(work, forecast.whole_work(self._period[name]))
            if full > 0.0:
                found.append(full / forecast.seconds(full, full))
        return max(min(found, default=self.scale), LEAST_SCALE)

    def _forecasts(self) -> dict[str, tuple[Forecast, float]]:
        """What every fragment expects of its next full batch: the forecast, and the work that fits into the batch."""
        found = {}
        for name in self.control:
            forecast = self._loops[name].forecast()
            if forecast is not None and forecast.fits is not None:
                found[name] = forecast, forecast.fits
        return found

    def plan_with(self, planner: Planner, network: Network | None = None, planned_scale: float = 1.0) -> None:
        """From now on plan with this planner: the same network with other costs.

        Work is counted in the costs of `network`, the planner's own if left out; `planned_scale` is the g that the
        planner's costs include already.
        """
        self._planner = planner
        self.network = planner.network if network is None else network
        self.planned_scale = planned_scale

    def take_over(self, before: Steering) -> None:
        """Go on with the controllers of a steering for the same target, for the fragments that both have."""
        common = self._loops.keys() & before._loops.keys()
        self._loops |= {name: before._loops[name] for name in common}
        self.control |= {name: decision for name, decision in before.control.items() if name in common}

    def observe(self, now_seconds: float, batch: FragmentBatch, waiting: Mapping[str, int]) -> None:
        """Feed one finished batch to its fragment's controller."""
        fragment = self.fragments[batch.fragment]
        cost = source_work(self.network, fragment, batch.arc_keeps)
        full = source_work(self.network, fragment, {})
        kept, offered = _work(cost, batch.kept), _work(full, batch.offered)
        if self._among_others and self._use.pop(fragment.node, 0.0) < BINDING:
            offered = min(kept, offered)  # what was dropped was dropped for another node
        if self.lossless:
            # How long tuples waited before their batch was cut is the backlog's, and no longer batch shortens it.
            batch = replace(batch, latency_seconds=BATCH_SHARE * batch.batch_seconds, latency_width_seconds=None)
        self.control[batch.fragment] = self._loops[batch.fragment].step(
            Observation(
                time_seconds=now_seconds,
                waiting=0.0 if self.lossless else _work(full, waiting),
                latency_seconds=batch.latency_seconds if self.lossless else self._own_latency(batch),
                kept=kept,
                offered=offered,
                latency_width_seconds=batch.latency_width_seconds,
                batch_seconds=batch.batch_seconds,
                target_seconds=self._places[batch.fragment].share_seconds(self.target_seconds)
                * self._share_factor(fragment.operators, now_seconds),
            )
        )

    def _own_latency(self, batch: FragmentBatch) -> float | None:
        """The part of the measured latency that this query answers for."""
        if batch.latency_seconds is None:
            return None
        place = self._places[batch.fragment]
        before = place.target_seconds(self.target_seconds) - place.share_seconds(self.target_seconds)
        return max(0.0, batch.latency_seconds - before)

    def decide(
        self,
        rates: Mapping[str, float],
        demand: Mapping[str, float],
        mode: Mode,
        issued_us: int,
        offered: Mapping[str, float] | None = None,
    ) -> Steered:
        """The decision for the coming batches: planned for the demand on them, both in tuples/s.

        `offered` is what links, memory and other nodes have to carry, where that is not the demand.
        """
        scale = self.scale
        if self.lossless:
            return self._limited(rates, demand, scale, mode, issued_us)
        plan = self._planned(demand, demand if offered is None else offered, scale / self.planned_scale, issued_us)
        if self._among_others:
            for node, load in flows(self.network, demand, plan.keeps).load.items():
                self._use[node] = max(self._use.get(node, 0.0), load / (self.network.nodes[node].cpu * scale))
        if self._windowed:
            least = common_keeps(self.network, common_keeps(self._whole, plan.keeps))
            plan = replace(plan, keeps=least, load=flows(self.network, demand, least).load)
        decision = JobDecision(
            mode=mode,
            salt=self._salt,
            drop=self._drop,
            streams={
                spec.location: self._skipped(spec, self._stream(plan.rates, plan.keeps, spec))
                for fragment in self.fragments.values()
                for spec in fragment.sources
                if spec.location is not None
            },
            arcs={at: _ppm(keep) for at, keep in plan.keeps.items() if at not in self.network.streams},
            issued_us=issued_us,
        )
        made = self._planner
        return Steered(
            *(plan, dict(rates), scale, named(decision), dict(self.control), made.name, made.objective.value),
            scales=dict.fromkeys(self._nodes, scale),
        )

    def _planned(self, demand: Mapping[str, float], offered: Mapping[str, float], scale: float, now_us: int) -> Plan:
        """The plan for a demand, made for what is offered: at rates d/φ and capacity g/φ, φ = Σ demand / Σ offered.

        The demand counts the tuples of a batch over P*, and more come in a second where batches are shorter. For the
        CPU of this node that is the same plan; a link, a memory and the nodes below have to carry the rates. Queries
        side by side have batches of different lengths: where nothing has piled up, links and memory carry the streams
        in the mix that is offered.

        A window outlasts many batches. One that holds little must not raise a keep that the next one lowers again, so
        plans for windows are made for what is offered in the long run, at g.
        """
        share = sum(demand.values()) / (sum(offered.values()) or 1.0) or 1.0
        rates: Rates
        if self._windowed:
            share, rates = 1.0, {name: max(rate, offered[name]) for name, rate in demand.items()}
        else:
            is_fresh = share < 1.0 and self._planner.program.has_fixed_resources
            rates = offered if is_fresh else {name: rate / share for name, rate in demand.items()}
        capacity = scale / share

        def ask(asked: Rates) -> Plan:
            return self._planner.plan(asked, capacity)

        program = self._planner.program
        plan = self._window_plans(ask, program.network, rates, capacity * program.headroom, now_us)
        flow = flows(self._planner.network, demand, plan.keeps)
        return replace(plan, rates=dict(demand), score=flow.score, load=flow.load, throughput=flow.throughput)

    def _skipped(self, spec: SourceSpec, decided: StreamDecision) -> StreamDecision:
        """With what is skipped of a stream; what another node has written has been paid for."""
        if spec.producer in self._links or spec.producer not in self.network.streams:
            return decided
        return replace(decided, max_age_us=self._skipping.max_age_us, most_waiting=self._skipping.most_waiting)

    @property
    def _nodes(self) -> set[str]:
        return {fragment.node for fragment in self.fragments.values()}

    def catch_up_seconds(self, waiting: Mapping[str, int], rates: Mapping[str, float]) -> float | None:
        """When what waits will have been processed; None: not at these rates."""
        return catch_up_seconds(self.network, self._nodes, waiting, rates, self.sustained_scale)

    def _limited(
        self, rates: Mapping[str, float], demand: Mapping[str, float], scale: float, mode: Mode, issued_us: int
    ) -> Steered:
        """Every stream whole, in batches of what fits; while all fits too: a burst may come before the next look."""
        share = admitted_share(self.network, self._nodes, demand, scale)
        flow = flows(self.network, {name: share * rate for name, rate in demand.items()})
        keeps = dict.fromkeys(self.network.drop_locations, 1.0)
        plan = Plan(dict(demand), keeps, share < 1.0, flow.score, flow.load, flow.throughput)
        sources = [spec for fragment in self.fragments.values() for spec in fragment.sources]

        def limit(stream: str) -> int | None:
            fits = fitting_rate(self.network, self._nodes, stream, scale) if share >= 1.0 else share * demand[stream]
            return None if fits is None else max(1, round(fits * self.period_seconds))

        streams = {
            spec.location: self._skipped(spec, StreamDecision(limit=limit(spec.producer)))
            for spec in sources
            if spec.location is not None
        }
        decision = JobDecision(mode=mode, salt=self._salt, drop=self._drop, streams=streams, issued_us=issued_us)
        scales = dict.fromkeys(self._nodes, scale)
        return Steered(plan, dict(rates), scale, named(decision), dict(self.control), "lossless", "", scales)

    def _stream(self, rates: Mapping[str, float], keeps: Mapping[str, float], spec: SourceSpec) -> StreamDecision:
        stream = spec.producer
        keep = keeps[stream] * (keeps[spec.branch] if spec.branch else 1.0)
        if keep >= 1.0 or (stream in self._links and keep > 1.0 - IGNORED_DROP):
            return StreamDecision()
        if spec.location in self._windowed:
            return StreamDecision(_ppm(keep))
        return StreamDecision(_ppm(keep), max(1, round(keep * rates[stream] * self.period_seconds)))


def source_work(network: Network, fragment: Fragment, arc_keeps: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the node's nominal CPU that one tuple of each source costs in this fragment.

    Costs and selectivities along the fragment's operators, with the keeps of drops on inner branches.
    """
    cpu = network.nodes[fragment.node].cpu
    inside = set(fragment.operators)
    below: dict[str, float] = {}

    def arc_work(producer: str, consumer: str) -> float:
        if consumer not in inside:
            return 0.0
        operator = network.operators[consumer]
        per_tuple = (operator.cost or 0.0) / cpu + network.contribution(operator, producer) * below[consumer]
        return per_tuple * arc_keeps.get(str(Arc(producer, consumer)), 1.0)

    for name in reversed(fragment.operators):
        cut = {arc.consumer for arc in fragment.cut if arc.producer == name}
        below[name] = sum(arc_work(name, c) for c in network.consumers[name] if c not in cut)
    work: dict[str, float] = {}
    for spec in fragment.sources:
        if spec.name == spec.producer:
            work[spec.location or spec.name] = sum(arc_work(spec.producer, c) for c in network.consumers[spec.producer])
        else:
            consumer = spec.name.removeprefix(f"{spec.producer}->")
            # The source itself applies the branch's keep here, so what it passes on costs the full amount.
            keep = arc_keeps.get(spec.name, 1.0)
            work[spec.location or spec.name] = arc_work(spec.producer, consumer) / keep if keep > 0 else 0.0
    return work


def _work(cost: Mapping[str, float], tuples: Mapping[str, int]) -> float:
    return sum(cost.get(name, 0.0) * count for name, count in tuples.items())


def _ppm(keep: float) -> int:
    return max(0, min(PPM, round(keep * PPM)))
