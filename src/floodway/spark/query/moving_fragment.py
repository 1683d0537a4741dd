"""A fragment that moves between participants, as the query that each of them runs: an entry of their catalogues.

What the query needs lies on the storage that they share and moves with the fragment; the decision file is the
participant's own. The number of tasks is one everywhere: a batch that another participant repeats must fall into the
same tasks.

SHARED/fragments/NAME/checkpoint          Spark's
SHARED/fragments/NAME/ledger/             offered, kept, dropped
SHARED/fragments/NAME/dead-letters/INPUT  malformed records, with the reason
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.member_network import member_network, operator_name, stream_name
from floodway.job.ledger.ledger import Ledger
from floodway.job.options.options import JobOptions
from floodway.network.model import Network, Node, Operator
from floodway.spark.log.inputs import place
from floodway.spark.query.catalogue import Catalogue
from floodway.spark.query.fragment_query import FragmentQuery, FragmentReport
from floodway.spark.query.fragments import Fragment, SourceSpec
from floodway.spark.query.layout import RunLayout
from floodway.spark.query.logs import create_sink_logs
from floodway.spark.query.retaining import Retaining, retention_of

NOWHERE = Node("", cpu=1.0)
"""The node of a fragment that moves."""
REHEARSED_TUPLES = 100


@dataclass(frozen=True, slots=True)
class MovingLayout(RunLayout):
    """The folder of one fragment on the shared storage; `own_decision` is the file of the participant that runs it."""

    shared: Path
    own_decision: Path | None = None

    @classmethod
    def of(cls, shared: Path, fragment: str, decision: Path | None = None) -> MovingLayout:
        """The folder of this fragment."""
        return cls(shared / "fragments" / fragment, shared, decision)

    @property
    def decision(self) -> Path:
        """The participant's decision file; none is there for an audit."""
        return self.own_decision or self.root / "decision.json"

    def checkpoint(self, fragment: Fragment) -> Path:
        """Spark's checkpoint, handed over with the fragment."""
        return self.root / "checkpoint"

    def stream(self, network: Network, name: str) -> str:
        """A log below the shared folder, or a topic."""
        return place(self.shared, network.streams[name].log or "")

    def output(self, network: Network, name: str) -> str:
        """The output log, below the shared folder."""
        return str(self.shared / (network.outputs[name].sink or ""))

    def owns(self, network: Network, output: str) -> bool:
        """No two fragments of a federation have the same output."""
        return True

    def dead_letters(self, spec: SourceSpec) -> Path:
        """Malformed records of one input."""
        return self.root / "dead-letters" / spec.name.partition(".")[2]


def moving_fragment(spec: FragmentSpec, node: str = NOWHERE.name) -> Fragment:
    """The fragment as a query of no node, or as part of the node that plans for it."""
    inputs = (stream_name(spec, one) for one in spec.logs)
    sources = tuple(SourceSpec(name, name, name) for name in inputs)
    return Fragment(spec.name, node, sources, (operator_name(spec),), (), (spec.name,), ())


def moving_query(
    spark: SparkSession,
    spec: FragmentSpec,
    catalogue: Catalogue,
    layout: MovingLayout,
    *,
    options: JobOptions | None = None,
    fence: Callable[[], None] = lambda: None,
    on_batch: Callable[[FragmentReport], None] = lambda report: None,
    trigger_seconds: float | None = None,
    gate: Path | None = None,
    last_tuples: int | None = None,
) -> FragmentQuery:
    """The fragment's query, ready to be started: its output log is there. Refuses what the catalogue does not have."""
    parameters = catalogue.check(spec.run, spec.logs, spec.parameters)
    entry = catalogue.get(spec.run)
    network = member_network([spec], NOWHERE, schemas=entry.schemas)
    options = options or JobOptions()
    kept = retention_of(options)

    def apply(operator: Operator, inputs: list[DataFrame]) -> DataFrame:
        return entry.build(dict(zip(spec.logs, inputs, strict=True)), parameters)

    query = FragmentQuery(
        *(spark, network, moving_fragment(spec), layout, Ledger(layout.store), on_batch),
        side_output=options.side_output,
        on_loss=options.on_loss,
        retaining=None if kept is None else Retaining(kept, frozenset(network.outputs)),
        apply=apply,
        fence=fence,
        trigger_seconds=trigger_seconds,
        gate=gate,
        last_tuples=last_tuples,
    )
    create_sink_logs([query], network, layout)
    return query


def rehearse(spark: SparkSession, spec: FragmentSpec, catalogue: Catalogue, shared: Path, folder: Path) -> None:
    """Run the fragment over the last tuples of its inputs, with all that it writes in a folder that is then removed.

    The first batch of a query loads classes, compiles its plan, starts Python workers and opens state stores: on a
    session that has never run it this takes longer than all else of a move.
    """
    shutil.rmtree(folder, ignore_errors=True)
    scratch = MovingLayout(folder.resolve(), shared)
    # Of another name: in one application no two queries have the same.
    alone = replace(spec, name=f"{spec.name}-rehearsal", output=str(scratch.root / "output"))
    try:
        moving_query(spark, alone, catalogue, scratch, last_tuples=REHEARSED_TUPLES).process_available()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
