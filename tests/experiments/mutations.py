"""The mechanisms of the papers, each with a patch that breaks it and the criteria of results that must then fail.

A result that holds without its mechanism proves nothing. `fails` names the beginning of a criterion by result. A patch
replaces one attribute; whoever moves a mechanism moves its patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import pytest

from floodway.buffering.adaptors import Shedding
from floodway.buffering.schedulers import Fifo
from floodway.control.base import Decision
from floodway.simulation.arrivals import poisson
from floodway.simulation.federation_cases import chain

Patch = tuple[str, Any]
"""Where, as a dotted path, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """`fails` maps results to beginnings of criteria. The quick ones run by default, the others with --run-slow.

    Those on Spark are not run intact first: whether they hold then is for `floodway reproduce` to say.
    """

    mechanism: str
    patches: tuple[Patch, ...]
    fails: Mapping[str, str]
    quick: bool = False
    on_spark: bool = False


def nothing_kept(self: Any, rates: Any) -> Any:
    """A planner's answer that drops everything: feasible, and worthless."""
    return np.zeros(len(self.network.drop_locations))


def no_flow(size: Callable[[Any, Any], int]) -> Callable[[Any, Any], Any]:
    """A table's answer that lets nothing flow."""
    return lambda self, rates: np.zeros(size(self, rates))


def keep_all(self: Any, state: Any, sample: Any) -> tuple[Any, Shedding]:
    """An adaptor that never sheds before the queue is full: tail drop."""
    return state, Shedding()


def admit_all(self: Any, state: Any, observation: Any) -> tuple[Any, Decision]:
    """A controller that lets everything pass."""
    return state, Decision(observation.waiting, 1.0, "broken")


def no_cleaner() -> Patch:
    """A buffer whose cleaner never looks."""
    from floodway.buffering.managers import WithBuffer

    real = vars(WithBuffer)["policy"].fget
    return (
        "floodway.buffering.managers.WithBuffer.policy",
        property(lambda self: replace(real(self), cleans=False)),
    )


def keep_share(share: float) -> Patch:
    """COB's share of what it lets in, fixed whatever its law says."""
    from floodway.buffering.managers import WithoutBuffer

    real = WithoutBuffer.control

    def control(self: Any, seen: Any) -> None:
        real(self, seen)
        self.keep = share

    return "floodway.buffering.managers.WithoutBuffer.control", control


def no_counter_offer() -> Patch:
    """Takers that say yes or no, and never name a price."""
    from floodway.simulation.federation_market import Market

    real = Market._answer

    def answer(self: Any, *given: Any) -> Any:
        accepted, asked = real(self, *given)
        return accepted, np.full_like(asked, inf)

    return "floodway.simulation.federation_market.Market._answer", answer


def strict_acceptance() -> Patch:
    """Accept strictly below the price, as the paper's Figure 3 prints it; who is refused at a price asks no more."""
    from floodway.simulation.federation_market import Market

    real = Market._answer

    def strict_level(self: Any, price: Any) -> Any:
        return np.searchsorted(self.price[1:], price * (1.0 - 1e-9), side="left")

    def answer(self: Any, givers: Any, column: Any, price: Any, offered: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Market, "level", strict_level)
            accepted, asked = real(self, givers, column, price, offered)
        return accepted, np.where(asked <= price * (1.0 + 1e-9), inf, asked)

    return "floodway.simulation.federation_market.Market._answer", answer


def never_asleep() -> Patch:
    """Nodes that try again in every round instead of waiting for a note of room."""
    from floodway.simulation.federation_market import Market

    real = Market.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        real(self, *given, **{**named, "notifications": False})

    return "floodway.simulation.federation_market.Market.__init__", init


def reversed_order() -> tuple[Patch, ...]:
    """Local drop locations from the most quality per load to the least."""
    from floodway.planning.fit.leaf import _Tree

    real = _Tree._sorted
    return (("floodway.planning.fit.leaf._Tree._sorted", lambda self: list(reversed(real(self)))),)


def nodes_alone() -> Patch:
    """Spark applications that plan for themselves only."""
    from floodway.agent.node.up import UpOptions

    return "floodway.experiments.on_spark.runs.UpOptions", lambda **given: UpOptions(**{**given, "control": "alone"})


def greedy_service(network: Any, rates: Any, keeps: Any) -> Any:
    """A scheduler that serves nobody beyond what was asked for: loads and throughputs of plain arithmetic."""
    from floodway.network.fair import fair

    return fair(
        replace(network, nodes={n: replace(node, cpu=100.0) for n, node in network.nodes.items()}), rates, keeps
    )


MUTATIONS = (
    Mutation(
        "linear program",
        (("floodway.planning.exact.ExactPlanner.lookup", nothing_kept),),
        {"staying-fit-table1": "all 25 entries as printed"},
        quick=True,
    ),
    Mutation(
        "C-FIT's answer",
        (("floodway.planning.fit.planner.FitPlanner.lookup", nothing_kept),),
        {
            "staying-fit-fig10": "C-FIT's plans",
            "staying-fit-fig13": "C-FIT's plans",
            "staying-fit-fig14": "C-FIT at 10%'s plans",
            "staying-fit-table3": "C-FIT's plans",
        },
    ),
    Mutation(
        "C-FIT's tables",
        (
            ("floodway.planning.fit.direct.DirectTable.flows", no_flow(lambda self, rates: len(rates))),
            ("floodway.planning.fit.plan_table.PlanTable.flows", no_flow(lambda self, rates: self.plans.shape[1])),
        ),
        {
            "staying-fit-fig10": "C-FIT's plans",
            "staying-fit-fig13": "C-FIT's plans",
            "staying-fit-table3": "C-FIT's plans",
        },
    ),
    Mutation(
        "Solver's plans",
        (("floodway.planning.solver.SolverPlanner.lookup", nothing_kept),),
        {
            "staying-fit-fig10": "Solver's plans",
            "staying-fit-fig11": "the mean error",
            "staying-fit-fig13": "Solver's plans",
            "staying-fit-fig14": "Solver-W's mean error",
        },
    ),
    Mutation(
        "Solver-W's workload",
        (("floodway.planning.solver_w.SolverWPlanner._probability", lambda self, number, workload: 1.0),),
        {"staying-fit-fig10": "Solver-W needs fewer calls"},
    ),
    Mutation(
        "a parent's own load",
        (("floodway.experiments.staying_fit.propagation.within_load", lambda table, cost: table),),
        {"staying-fit-propagation": "no row earns more than the optimum"},
        quick=True,
    ),
    Mutation(
        "selectivities on the way up",
        (("floodway.experiments.staying_fit.propagation.through_chain", lambda table, inputs, selectivity: table),),
        {"staying-fit-propagation": "applied as min(F, r)"},
        quick=True,
    ),
    Mutation(
        "tables adapted to a workload",
        (("floodway.planning.fit.planner.adapted_rows", lambda table, *given: table),),
        {"staying-fit-adaptive": "no table of a coarser"},
        quick=True,
    ),
    Mutation(
        "D-FIT's tables",
        (("floodway.planning.fit.dfit.DFitPlanner.lookup", nothing_kept),),
        {"staying-fit-dfit": "D-FIT's plans"},
    ),
    Mutation(
        "incremental upkeep",
        (("floodway.planning.fit.dfit._changed", lambda old, new, cluster: True),),
        {"staying-fit-dfit": "with 31 nodes fewer than half"},
    ),
    Mutation(
        "spread by ε",
        (("floodway.experiments.staying_fit.fig15.steps", lambda spread, top: np.linspace(0.0, top, 9)),),
        {"staying-fit-fig15": "rows fall with ε"},
    ),
    Mutation(
        "sample points of a FIT",
        (("floodway.experiments.staying_fit.fit_examples.steps", lambda spread, top: np.linspace(0.0, top, 5)),),
        {"staying-fit-fit-examples": "46 entries"},
        quick=True,
    ),
    Mutation(
        "order of local drops",
        reversed_order(),
        {"staying-fit-split-example": "the lower branch is dropped from before the input"},
        quick=True,
    ),
    Mutation(
        "fair scheduler",
        (("floodway.experiments.staying_fit.table1.fair", greedy_service),),
        {"staying-fit-table1": "all 25 entries as printed"},
        quick=True,
    ),
    Mutation(
        "EDF",
        (("floodway.buffering.managers.scheduler", lambda name: Fifo()),),
        {
            "buffer-fig3": "cleaner also at dispatch: EDF",
            "buffer-fig7": "cleaner once a cycle: more tuples are on time with CWB than with FIFO for EDF",
            "buffer-fig8": "cleaner once a cycle: more tuples are on time with CWB than with COB",
        },
    ),
    Mutation(
        "PID",
        (("floodway.buffering.adaptors.PidAdaptor.update", keep_all),),
        {
            "buffer-fig4": "cleaner also at dispatch: PID misses fewer",
            "buffer-fig5": "under PID the median occupancy",
            "buffer-fig7": "cleaner once a cycle: more tuples are on time with CWB than with tail drop for PID",
            "buffer-fig8": "cleaner once a cycle: more tuples are on time with CWB than with COB",
        },
    ),
    Mutation(
        "RED'",
        (("floodway.buffering.adaptors.RedAdaptor.update", keep_all),),
        {
            "buffer-fig4": "cleaner also at dispatch: RED' misses fewer",
            "buffer-fig5": "under RED' the queue is emptier",
        },
    ),
    Mutation(
        "cleaner",
        (no_cleaner(),),
        {
            "buffer-fig7": "cleaner once a cycle: more tuples are on time with CWB than with no cleaner",
            "buffer-fig8": "cleaner also at dispatch: CWB keeps late tuples within",
        },
    ),
    Mutation(
        "cost estimate",
        (("floodway.buffering.cleaner.CostEstimate.observe", lambda self, seen: self),),
        {"buffer-fig6": "a first estimate wrong by ten"},
    ),
    Mutation(
        "PI controller",
        (("floodway.control.pi.PiController.update", admit_all),),
        {"buffer-section3": "in front of a processor with a queue"},
    ),
    Mutation(
        "COB that lets nothing in",
        (keep_share(0.0),),
        {"buffer-fig7": "COB is a fair baseline", "buffer-fig8": "COB is a fair baseline"},
    ),
    Mutation(
        "COB that lets everything in",
        (keep_share(1.0),),
        {"buffer-fig7": "CWB uses more CPU than COB", "buffer-fig8": "CWB uses more CPU than COB"},
    ),
    Mutation(
        "bursty traffic",
        (("floodway.experiments.buffer.common.self_similar", poisson),),
        {"buffer-fig8": "the gap in utilisation is larger"},
    ),
    Mutation(
        "latency law",
        (("floodway.control.latency.law_factor", lambda gain, target, latency: 1.0),),
        {
            "dissp-fig6": "where every rate overloads",
            "dissp-fig7": "the mean is within",
            "dissp-laws": "the latency law returns",
        },
    ),
    Mutation(
        "cost of a dropped tuple",
        (("floodway.experiments.dissp.common.GATHERING_SHARE", 0.0),),
        {"dissp-fig6": "bookkeeping takes CPU"},
    ),
    Mutation(
        "the engine's limit",
        (("floodway.experiments.dissp.common.SUSTAINED_QUERIES", 1000),),
        {"dissp-fig5": "above 100 queries"},
    ),
    Mutation(
        "acceptance at the price",
        (strict_acceptance(),),
        {"contracts-fig9": "fixed prices use over 95%"},
    ),
    Mutation(
        "negotiation",
        (no_counter_offer(),),
        {
            "contracts-fig8": "a price range leaves no excess",
            "contracts-fig9": "a price range uses over 98%",
            "contracts-lemmas": "Lemma 1",
        },
    ),
    Mutation(
        "price ranges",
        (("floodway.simulation.federation_cases.Variant.has_range", property(lambda self: False)),),
        {"contracts-fig10": "Fixed settles sooner than Range", "contracts-fig11": "fixed prices move fewer"},
    ),
    Mutation(
        "notifications",
        (never_asleep(),),
        {"contracts-lemmas": "Lemma 4: notifications take fewer"},
    ),
    Mutation(
        "random contracts",
        (("floodway.experiments.contracts.table1.random_contracts", lambda nodes, contracts, rng: chain(nodes)),),
        {"contracts-table1": "the mean eccentricity"},
        quick=True,
    ),
    Mutation(
        "convex cost",
        (("floodway.contracts.cost.InFlight.cost", lambda self, load: load.cpu + load.link),),
        {"contracts-lemmas": "Lemma 1"},
        quick=True,
    ),
    Mutation(
        "measured sizes",
        (("floodway.agent.loop.sizes.MeasuredSizes.applied", lambda self, network: network),),
        {"spark-bandwidth": "the wide tuples are dropped", "spark-memory": "what takes state is dropped"},
        on_spark=True,
    ),
    Mutation(
        "Window Drop",
        (("floodway.agent.loop.runner._windows", lambda network, options: {}),),
        {"spark-window-drop": "every window that comes out"},
        on_spark=True,
    ),
    Mutation(
        "windows in the plan",
        (("floodway.agent.loop.steering.window_plans", lambda *given: lambda ask, network, rates, *more: ask(rates)),),
        {"spark-window-choice": "of two equal streams one is kept whole"},
        on_spark=True,
    ),
    Mutation(
        "as much as fits",
        (("floodway.agent.loop.steering.Steering.scale", property(lambda self: 0.2)),),
        {"spark-union": "the mean latency is", "spark-window-drop": "the fullest node does at least"},
        on_spark=True,
    ),
    Mutation(
        "coordination of nodes",
        (nodes_alone(),),
        {"spark-table1": "and at least 1.3 times"},
        on_spark=True,
    ),
)
