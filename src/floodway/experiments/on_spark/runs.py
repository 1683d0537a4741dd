"""A network of the papers on Spark, in one application or in one for each node: what it earns against the optimum."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from floodway.agent.loop.feeding import Feed
from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.node.nodes_report import NodesReport
from floodway.agent.node.up import UpOptions, bring_up
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.job.options.targets import Target
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.spark.query.layout import RunLayout

NEAR = 0.9
"""Least share of the optimum."""

Check = Callable[[RunReport, Network, RunLayout], Sequence[Criterion]]


@dataclass(frozen=True, kw_only=True)
class _SparkRun:
    """One network under more load than it can take; half of the time is for settling."""

    id: str
    TITLE: str
    CLAIM: Claim
    text: str
    seconds: float
    target_seconds: float
    notes: tuple[str, ...] = ()

    def _result(
        self,
        report: RunReport | NodesReport,
        criteria: Sequence[Criterion],
        *,
        scored: bool,
        shown: Mapping[str, Any],
        how: str,
        remark: str,
    ) -> Result:
        """The result; `shown` are figures beside those that every run has, `how` says where it ran."""
        told = report.to_dict()
        share = report.score / report.optimum if report.optimum > 0 else 0.0
        near = Criterion(
            f"the outputs earn at least {NEAR:.0%} of the optimum for the capacity there was",
            NEAR <= share <= 1.0 + 1e-6,
            f"{share:.1%}",
        )
        accounts = Criterion(
            "something was dropped, and offered = kept + dropped to the tuple, on every link too",
            bool(told["dropped"]) and not report.differences,
            "; ".join(report.differences),
        )
        every = ("rates", "score", "optimum", "throughput", "dropped", "latency", "differences")
        return Result(
            id=self.id,
            title=self.TITLE,
            paper=self.CLAIM,
            measured={**{key: told[key] for key in every}, **shown},
            criteria=(*((near,) if scored else ()), *criteria, accounts),
            where="spark",
            notes=(f"{how} for {self.seconds:g} s, at a target of {self.target_seconds:g} s.", *self.notes),
            headline=f"{report.score:.1f} of {report.optimum:.1f} weighted tuples/s ({share:.0%}); {remark}",
        )


@dataclass(frozen=True, kw_only=True)
class NetworkRun(_SparkRun):
    """In one application; `check` adds the criteria of its own."""

    rates: Mapping[str, float]
    check: Check = field(default=lambda report, network, layout: ())
    seconds: float = 60.0
    target_seconds: float = 4.0
    scored: bool = True

    def run(self, *, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
        """Run it once: Spark has no seeds."""
        network = parse_network(self.text)
        with tempfile.TemporaryDirectory(prefix=f"floodway-{self.id}-") as folder:
            options = RunOptions(
                seconds=self.seconds,
                root=Path(folder),
                target=Target(self.target_seconds),
                settle_seconds=self.seconds / 2,
                feeds={name: Feed(rate=rate) for name, rate in self.rates.items()},
            )
            report = run_network(network, options)
            own = self.check(report, network, RunLayout(Path(folder)))
        progress(1.0)
        mean = report.latency.mean
        return self._result(
            report,
            own,
            scored=self.scored,
            shown={
                "capacity_scale": report.capacity_scale,
                "bandwidth": dict(report.bandwidth),
                "memory": dict(report.memory),
            },
            how="Operators busy-wait their costs in one Spark application",
            remark=f"mean latency {'not known' if mean is None else f'{mean:.1f} s'}",
        )


@dataclass(frozen=True, kw_only=True)
class NodesRun(_SparkRun):
    """An application for each node, by D-FIT; `gain` is by what it beats nodes that plan alone.

    The compilers of all Java processes have to come to rest while it settles.
    """

    gain: float
    seconds: float = 120.0
    target_seconds: float = 24.0

    def run(self, *, seeds: Sequence[int], trace: Path | None, progress: Progress) -> Result:
        """Run it once: Spark has no seeds."""
        network = parse_network(self.text)
        with tempfile.TemporaryDirectory(prefix=f"floodway-{self.id}-") as folder:
            file = Path(folder) / "network.yaml"
            file.write_text(self.text, encoding="utf-8")
            options = UpOptions(
                network_file=file,
                root=Path(folder) / "state",
                seconds=self.seconds,
                control="dfit",
                target=Target(self.target_seconds),
                settle_seconds=self.seconds / 2,
            )
            report = bring_up(network, options)
        progress(1.0)
        told = report.to_dict()
        alone = uncoordinated(network, report.rates, {name: node.capacity for name, node in report.nodes.items()})
        gain = report.score / alone if alone > 0 else 0.0
        beaten = Criterion(
            f"and at least {self.gain:g} times what nodes that plan alone would", gain >= self.gain, f"{gain:.2f}"
        )
        return self._result(
            report,
            [beaten],
            scored=True,
            shown={
                "capacity": told["capacity"],
                "score if every node planned alone": alone,
                "restarts": told["restarts"],
            },
            how=f"{len(network.nodes)} Spark applications on this machine",
            remark=f"nodes that plan alone would earn {alone:.1f}",
        )


def uncoordinated(network: Network, rates: Mapping[str, float], capacity: Mapping[str, float]) -> float:
    """The score when every node plans for itself only (Table 1, plan 2), at these shares of nominal CPU.

    Nodes stand in the file in the order of the flow.
    """
    given = dict(rates)
    score = 0.0
    for node in network.nodes:
        part = node_part(network, node)
        had = {node: replace(part.nodes[node], cpu=part.nodes[node].cpu * capacity[node])}
        plan = ExactPlanner(Program(replace(part, nodes=had))).plan({name: given[name] for name in part.streams})
        given |= plan.throughput
        score += sum(
            network.outputs[name].weight * rate for name, rate in plan.throughput.items() if name in network.outputs
        )
    return score
