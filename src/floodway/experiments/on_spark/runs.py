"""A network of the papers on Spark, in one application or in one for each node: what it earns against the optimum.

The optimum is for the capacity that the kept tuples used, so it judges the mix alone. Two criteria more judge how much
was kept. The mean latency lies at its target: below it there was time for more tuples. And the capacity is used:

    u = work kept a second / nominal CPU        a = seconds of a batch less the seconds of its work
    P = T / 1.5, the batch that meets a query's share T of the target        used = u / (1 - a/P)

1 - a/P is what batches of the planned length would have had time for, beside what Spark takes for each of them. A run
that sheds too much has batches that are shorter than P, or pauses between them, and both make `used` less than 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from floodway.agent.loop.feeds import Feed
from floodway.agent.loop.record import RunReport
from floodway.agent.loop.runner import RunOptions, run_network
from floodway.agent.loop.stages import stages
from floodway.agent.loop.steering_loop import fragments_of
from floodway.agent.node.nodes_report import NodesReport
from floodway.agent.node.up import UpOptions, bring_up
from floodway.control.base import BATCH_SHARE
from floodway.experiments.result import Claim, Criterion, Progress, Result
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.network.part import node_part
from floodway.planning.exact import ExactPlanner
from floodway.planning.program import Program
from floodway.spark.query.layout import RunLayout

NEAR = 0.9
"""Least share of the optimum."""

LATENCY_RANGE = 0.75, 1.25
"""Mean latency over target. About ten batches are measured: one that takes twice as long makes the mean 15% larger."""

LEAST_USED = 0.8
"""Least `used`. Where Spark takes a third of a batch, a mean latency at the lower end of its range comes to 0.83."""

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
        mean = report.latency.mean
        return Result(
            measured={**{key: told[key] for key in every}, **shown},
            criteria=(*((near,) if scored else ()), *criteria, accounts),
            where="spark",
            notes=(f"{how} for {self.seconds:g} s, at a target of {self.target_seconds:g} s.", *self.notes),
            headline=f"{report.score:.1f} of {report.optimum:.1f} weighted tuples/s ({share:.0%}); mean latency "
            f"{'not known' if mean is None else f'{mean:.1f} s'}; {remark}",
        )

    def _at_target(self, report: RunReport | NodesReport, *, is_full: bool = True) -> Criterion:
        """That the mean latency is at its target; where the CPU does not limit, that it is not above it."""
        mean = report.latency.mean
        low, high = (bound * self.target_seconds for bound in LATENCY_RANGE)
        return Criterion(
            f"the mean latency is {f'between {low:g} and' if is_full else 'below'} {high:g} s",
            mean is not None and (low if is_full else 0.0) <= mean <= high,
            "no result after settling" if mean is None else f"{mean:.2f} s",
        )


def used_share(work: float, overhead_seconds: float, period_seconds: float) -> float:
    """`used` for u, a and P; 0 where a batch of the planned length has no time for tuples at all.

    >>> used_share(work=0.7, overhead_seconds=0.8, period_seconds=8 / 3), round(used_share(0.4, 0.8, 8 / 3), 2)
    (1.0, 0.57)
    """
    could = 1.0 - max(overhead_seconds, 0.0) / period_seconds
    return work / could if could > 0.0 else 0.0


def _capacity_used(shares: Mapping[str, float]) -> Criterion:
    """That the fullest node was used; which of them that is depends on the plan."""
    return Criterion(
        f"the fullest node does at least {LEAST_USED:.0%} of the work that batches of the planned length have time for",
        max(shares.values(), default=0.0) >= LEAST_USED,
        ", ".join(f"{node}: {share:.0%}" for node, share in shares.items()),
    )


@dataclass(frozen=True, kw_only=True)
class NetworkRun(_SparkRun):
    """In one application; `check` adds the criteria of its own.

    `full` says that the CPU of its only node and query is what limits. `timed` is False where results wait for the end
    of a window, and their latency with them.
    """

    rates: Mapping[str, float]
    check: Check = field(default=lambda report, network, layout: ())
    seconds: float = 60.0
    target_seconds: float = 4.0
    scored: bool = True
    full: bool = True
    timed: bool = True

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
            result = self.judged(report, network, RunLayout(Path(folder)))
        progress(1.0)
        return result

    def judged(self, report: RunReport, network: Network, layout: RunLayout) -> Result:
        """The verdict on a run whose files are there."""
        timed = [self._at_target(report, is_full=self.full)] if self.timed else []
        used = {name: self.used(report) for name in network.nodes} if self.full else {}
        return self._result(
            report,
            [*timed, *([_capacity_used(used)] if used else ()), *self.check(report, network, layout)],
            scored=self.scored,
            shown={
                "capacity_scale": report.capacity_scale,
                "capacity used": used,
                "batches": self._batches(report),
                "bandwidth": dict(report.bandwidth),
                "memory": dict(report.memory),
            },
            how="Operators busy-wait their costs in one Spark application",
            remark=f"work for {report.capacity_scale:.0%} of the nominal CPU",
        )

    def _batches(self, report: RunReport) -> dict[str, float]:
        """How many there were after settling, how long they took, and from the end of one to that of the next."""
        lengths = self._lengths(report)
        between = report.measured_seconds / max(len(lengths) - 1, 1)
        return {"number": len(lengths), "mean seconds": sum(lengths) / max(len(lengths), 1), "one to the next": between}

    def _lengths(self, report: RunReport) -> list[float]:
        return [one.batch_seconds for one in report.points if self.seconds / 2 <= one.seconds <= self.seconds]

    def used(self, report: RunReport) -> float:
        """`used` of the batches after settling."""
        lengths = self._lengths(report)
        if len(lengths) < 2:
            return 0.0
        # The end of the first of them is where the measured seconds begin.
        work_seconds = report.capacity_scale * report.measured_seconds / (len(lengths) - 1)
        overhead = sum(lengths[1:]) / (len(lengths) - 1) - work_seconds
        return used_share(report.capacity_scale, overhead, self.target_seconds / BATCH_SHARE)


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
        return self.judged(report, network)

    def judged(self, report: NodesReport, network: Network) -> Result:
        """The verdict on a run."""
        told = report.to_dict()
        alone = uncoordinated(network, report.rates, {name: node.capacity for name, node in report.nodes.items()})
        gain = report.score / alone if alone > 0 else 0.0
        beaten = Criterion(
            f"and at least {self.gain:g} times what nodes that plan alone would", gain >= self.gain, f"{gain:.2f}"
        )
        used = self.used(report, network)
        return self._result(
            report,
            [beaten, self._at_target(report), _capacity_used(used)],
            scored=True,
            shown={
                "capacity": told["capacity"],
                "capacity used": used,
                "score if every node planned alone": alone,
                "restarts": told["restarts"],
            },
            how=f"{len(network.nodes)} Spark applications on this machine",
            remark=f"nodes that plan alone would earn {alone:.1f}",
        )

    def used(self, report: NodesReport, network: Network) -> dict[str, float]:
        """`used` by node. Every node has one query, and its share of the target."""
        fragments = fragments_of(network)
        places = {fragments[name].node: stage for name, stage in stages(fragments).items()}
        found = {}
        for name, node in report.nodes.items():
            batch_work = node.load * report.measured_seconds / max(node.batches, 1)
            overhead = batch_work * (1.0 / node.capacity - 1.0) if node.capacity > 0.0 else 0.0
            period = places[name].share_seconds(self.target_seconds) / BATCH_SHARE
            found[name] = used_share(node.load, overhead, period)
        return found


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
