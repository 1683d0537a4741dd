"""Where a run keeps its files: one folder, one place for each thing.

ROOT/decision.json            what the sources drop now (job/decision.py)
ROOT/mode.json                what `floodway set` asks for
ROOT/status.json              the latest figures, for `floodway top`
ROOT/ledger/                  offered, kept, dropped (job/ledger/ledger.py)
ROOT/plans/                   the plans that batches were cut under (agent/loop/plans.py)
ROOT/checkpoints/NODE.FRAGMENT  Spark's, with notes of our own (spark/query/query_notes.py)
ROOT/streams/STREAM           logs of streams that name none
ROOT/links/PRODUCER--CONSUMER logs of cut arcs
ROOT/outputs/OUTPUT           logs of outputs that name no sink
ROOT/dead-letters/SOURCE      malformed records, with the reason
ROOT/dropped/SOURCE           the capped side output of dropped tuples
ROOT/windows/QUERY.json       which windows a query keeps, for the queries below it (spark/query/fragment_windows.py)
ROOT/lost/, ROOT/malformed/   notes of tasks: tuples deleted before they were read, bad records (spark/source/notes.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from floodway.job.store.store import LocalStore
from floodway.network.model import Arc, Network
from floodway.spark.query.fragments import Fragment, SourceSpec, link_name
from floodway.spark.source.notes import LOST


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The folder of one run of one network."""

    root: Path

    @property
    def decision(self) -> Path:
        """The decision file all sources of the run read."""
        return self.root / "decision.json"

    @property
    def status(self) -> Path:
        """The latest figures."""
        return self.root / "status.json"

    @property
    def store(self) -> LocalStore:
        """The folder as a store: of the ledger, the mode, the status."""
        return LocalStore(self.root)

    @property
    def notes(self) -> Path:
        """Where tasks leave notes for the driver."""
        return self.root

    @property
    def lost(self) -> Path:
        """Notes of tuples that were deleted before they were read."""
        return self.notes / LOST

    @property
    def windows(self) -> Path:
        """Which windows the queries keep."""
        return self.root / "windows"

    def checkpoint(self, fragment: Fragment) -> Path:
        """Spark's checkpoint of one fragment."""
        return self.root / "checkpoints" / fragment.query

    def stream(self, network: Network, name: str) -> str:
        """The log of a stream: the one its file names, or one of the run's own."""
        return network.streams[name].log or str(self.root / "streams" / name)

    def link(self, arc: Arc) -> Path:
        """The log that carries a cut arc."""
        return self.root / "links" / link_name(arc)

    def output(self, network: Network, name: str) -> str:
        """The sink of an output: the one its file names, or a log of the run's own."""
        return network.outputs[name].sink or str(self.root / "outputs" / name)

    def owns(self, network: Network, output: str) -> bool:
        """Whether nobody else writes to an output: one that the file names may have other writers."""
        return network.outputs[output].sink is None

    def source(self, network: Network, fragment: Fragment, spec: SourceSpec) -> str:
        """The log that a fragment's source reads."""
        if spec.producer in network.streams:
            return self.stream(network, spec.producer)
        consumer = next(c for c in fragment.operators if str(Arc(spec.producer, c)) == spec.name)
        return str(self.link(Arc(spec.producer, consumer)))

    def dead_letters(self, spec: SourceSpec) -> Path:
        """Malformed records of one source."""
        return self.root / "dead-letters" / spec.name.replace("->", "--")

    def dropped(self, spec: SourceSpec) -> Path:
        """The side output of one source's dropped tuples."""
        return self.root / "dropped" / spec.name.replace("->", "--")
