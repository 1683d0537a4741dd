"""Fragments on Spark: one application a participant, one streaming query a fragment, measured while they run.

Load is what arrives, not what is processed: tuples/s in the input logs × CPU-seconds a tuple. The cost of a tuple is
the file's where it gives one; otherwise it is measured, with older batches fading:

    cost = (CPU of the tasks of the fragment's jobs + its share of the Python workers' CPU) / tuples read
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from floodway.agent.federation.engine import EndedBatch, Fence, Measure
from floodway.agent.federation.errors import FragmentLostError
from floodway.agent.loop.backlog import RateMeter
from floodway.agent.loop.batch_figures import finished_batch
from floodway.agent.loop.steering import FragmentBatch
from floodway.contracts.federation_file import FragmentSpec
from floodway.contracts.member_network import stream_name
from floodway.job.ledger.fold import Counts
from floodway.job.options.options import JobOptions
from floodway.job.status.batches import BatchLog, BatchReader, Sketch
from floodway.job.store.store import Store, StoreError
from floodway.spark.log.inputs import Arrivals, place
from floodway.spark.measure.cpu import CpuMeter, PythonShares, QueryCpu
from floodway.spark.query.catalogue import Catalogue
from floodway.spark.query.dead_letters import PREFIX
from floodway.spark.query.fragment_query import FragmentQuery, FragmentReport
from floodway.spark.query.moving_fragment import MovingLayout, moving_query, rehearse
from floodway.spark.session.session import Session
from floodway.spark.source import register

RATE_SECONDS = 5.0
START_SECONDS = 60.0
"""How long a query may look for its sources."""
NEW_WEIGHT = 0.3
"""How much of what was measured before is forgotten with each new measurement of a tuple's cost."""


def _not_held() -> None:
    raise FragmentLostError("the fragment is prepared, and held by another", hint="Start it")


@dataclass
class _Running:
    """One fragment's query with what its measurements need."""

    spec: FragmentSpec
    query: FragmentQuery
    arrivals: Arrivals
    rates: RateMeter
    record: FragmentRecord
    cpu: QueryCpu | None = None
    """None until the query has started."""
    taken: dict[str, int] = field(default_factory=dict)
    """How far its batches have come in each log."""
    malformed: int = 0
    fresh_tuples: int = 0
    fresh_cpu: float = 0.0
    past_tuples: float = 0.0
    past_cpu: float = 0.0
    cost: float | None = None
    since: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    fence: Fence = _not_held

    def ended(self, report: FragmentReport) -> None:
        """A batch has ended."""
        offsets = report.journal.offsets
        with self.lock:
            self.fresh_tuples += sum(offset.account().kept for offset in offsets.values())
            self.taken.update((at, sum(offset.end.values())) for at, offset in offsets.items())
            self.malformed += sum(one.rows for sink, one in report.delivered.items() if sink.startswith(PREFIX))
        self.record.ended(report, self.cost or 0.0)

    def spent(self, cpu_seconds: float, tuples: int) -> None:
        """What was used and read since the last measurement. Jobs and batches need not end in the same one."""
        self.fresh_cpu += cpu_seconds
        if tuples:
            self.past_tuples = (1 - NEW_WEIGHT) * self.past_tuples + tuples
            self.past_cpu = (1 - NEW_WEIGHT) * self.past_cpu + self.fresh_cpu
            self.fresh_cpu = 0.0
            self.cost = self.past_cpu / self.past_tuples


class SparkFragments:
    """Runs fragments of one catalogue in one Spark session; see `engine.Engine`."""

    def __init__(
        self,
        spark: Session,
        catalogue: Catalogue,
        shared: Path,
        decision: Path,
        options: JobOptions | None = None,
        *,
        trigger_seconds: float = 1.0,
        stop_seconds: float = 20.0,
    ) -> None:
        register(spark)
        self._spark = spark
        self._catalogue = catalogue
        self._shared = shared
        self._decision = decision
        self._options = options or JobOptions()
        self._trigger_seconds = trigger_seconds
        self._stop_seconds = stop_seconds
        self._cpu = CpuMeter(spark)
        self._python_read = self._cpu.python_seconds()
        self._python = PythonShares()
        self._running: dict[str, _Running] = {}
        self._prepared: dict[str, _Running] = {}
        """Queries that wait at their gates."""
        self._lock = threading.RLock()
        self._reports: queue.SimpleQueue[FragmentReport] = queue.SimpleQueue()

    def check(self, spec: FragmentSpec) -> None:
        """Refuse what the catalogue does not have."""
        self._catalogue.check(spec.run, spec.logs, spec.parameters)

    def prepare(self, spec: FragmentSpec) -> None:
        """Run the entry once aside, so that the session has compiled it; then start the query as far as its gate."""
        self.check(spec)
        self.forget(spec.name)
        rehearse(self._spark, spec, self._catalogue, self._shared, self._decision.parent / "rehearsal" / spec.name)
        running = self._made(spec, gate=self._decision.parent / "gates" / spec.name)
        running.query.prepare(wait_seconds=START_SECONDS)
        with self._lock:
            self._prepared[spec.name] = running

    def forget(self, fragment: str) -> None:
        """Stop a query that waits at its gate."""
        with self._lock:
            running = self._prepared.pop(fragment, None)
        if running is not None:
            running.query.stop()

    def start(self, spec: FragmentSpec, fence: Fence) -> None:
        """Start the query from the checkpoint on the shared storage, or let one that was prepared go on."""
        with self._lock:
            known = self._running.get(spec.name)
            if known is not None and known.query.failure() is None:
                return
            running = self._prepared.pop(spec.name, None)
        if running is None or running.query.failure() is not None:
            running = self._made(spec)
        running.fence = fence
        running.query.start(wait_seconds=START_SECONDS)
        running.cpu = QueryCpu(self._spark, running.query.run_id or "")
        with self._lock:
            self._running[spec.name] = running

    def _made(self, spec: FragmentSpec, gate: Path | None = None) -> _Running:
        """The query and what its measurements need, not started."""
        self.check(spec)
        arrivals = Arrivals({stream_name(spec, one): place(self._shared, log) for one, log in spec.logs.items()})

        def on_batch(report: FragmentReport) -> None:
            running.ended(report)
            self._reports.put(report)

        layout = MovingLayout.of(self._shared, spec.name, self._decision)
        query = moving_query(
            self._spark,
            spec,
            self._catalogue,
            layout,
            options=self._options,
            fence=lambda: running.fence(),
            on_batch=on_batch,
            trigger_seconds=self._trigger_seconds,
            gate=gate,
        )
        record = FragmentRecord(spec, layout.store)
        running = _Running(spec, query, arrivals, RateMeter(RATE_SECONDS), record, cost=spec.cost)
        return running

    def stop(self, fragment: str, *, after_batch: bool = False) -> None:
        """Stop at a batch boundary, if there is one within the time allowed."""
        with self._lock:
            running = self._running.pop(fragment, None)
        if running is not None:
            running.query.stop(self._stop_seconds, after_batch=after_batch)

    def failures(self) -> dict[str, str]:
        """Queries that ended by themselves."""
        with self._lock:
            found = {name: one.query.failure() for name, one in self._running.items()}
            failed = {name: reason for name, reason in found.items() if reason is not None}
            for name in failed:
                del self._running[name]
        return failed

    def measure(self, now: float) -> dict[str, Measure]:
        """Rates from the logs, costs from the CPU clock, delays from the backlog by Little's law."""
        with self._lock:
            running = dict(self._running)
        used = self._used(running, now)
        found = {name: self._measured(one, now, used.get(name, 0.0)) for name, one in running.items()}
        # A rate over less than its window says little, and a cost not measured yet nothing: a fragment that has just
        # come is taken as it was offered.
        known = [
            name for name, one in running.items() if one.cost is not None and now - (one.since or now) >= RATE_SECONDS
        ]
        return {name: found[name] for name in known}

    def _used(self, running: Mapping[str, _Running], now: float) -> dict[str, float]:
        """CPU-seconds of each fragment since the last measurement; nothing is asked if all costs are declared."""
        python = self._cpu.python_seconds()
        fresh, self._python_read = python - self._python_read, python
        if all(one.spec.cost is not None for one in running.values()):
            return {}
        spent = {name: one.cpu.read() for name, one in running.items() if one.cpu is not None}
        workers = self._python.share(now, fresh, {name: one.waiting for name, one in spent.items()})
        return {name: one.cpu + workers[name] for name, one in spent.items()}

    def _measured(self, one: _Running, now: float, cpu: float) -> Measure:
        arrived = one.arrivals.totals()
        one.since = now if one.since is None else one.since
        one.rates.sample(now, arrived)
        rates = one.rates.rates()
        with one.lock:
            tuples = one.fresh_tuples
            one.fresh_tuples = 0
            waiting = {name: max(0, arrived[name] - taken) for name, taken in one.taken.items()}
        if one.spec.cost is None:
            one.spent(cpu, tuples)
        rate = sum(rates.values())
        delay = self._trigger_seconds + (sum(waiting.values()) / rate if rate > 0 else 0.0)
        return Measure(rates, one.cost or 0.0, delay, one.malformed, waiting)

    def batches(self) -> list[EndedBatch]:
        """What the controllers see of the batches that have ended since the last call."""
        found = []
        while not self._reports.empty():
            report = self._reports.get()
            counts = Counts.of(report.lines)
            latency = report.mean_latency((report.fragment,))
            batch = FragmentBatch(report.fragment, counts.offered, counts.kept, report.seconds, latency, arc_keeps={})
            found.append(EndedBatch(batch, report.journal.plans))
        return found

    def close(self) -> None:
        """Stop all queries; the session is its owner's to stop."""
        for fragment in list(self._prepared):
            self.forget(fragment)
        for fragment in list(self._running):
            self.stop(fragment)


class FragmentRecord:
    """Writes the batches that one participant runs; who ran the fragment before has ended when the first one ends."""

    def __init__(self, spec: FragmentSpec, store: Store) -> None:
        self._spec = spec
        self._store = store
        self._log: BatchLog | None = None
        self._cut_seconds: float | None = None

    def ended(self, report: FragmentReport, cost: float) -> None:
        """Put a batch on record; `cost` in CPU-seconds per tuple."""
        counts = Counts.of(report.lines)
        batch = finished_batch(
            report,
            counts,
            inputs=[stream_name(self._spec, one) for one in self._spec.logs],
            outputs=(self._spec.name,),
            work_seconds=counts.kept.total() * cost,
        )
        if batch.kept and not batch.latencies.count:
            # An entry that drops `_arrival`: its tuples came at any time since the batch before was cut.
            waited = 0.0 if self._cut_seconds is None else (report.cut_seconds - self._cut_seconds) / 2
            batch = replace(batch, latencies=Sketch.of([(report.seconds + waited, batch.kept)]))
        self._cut_seconds = report.cut_seconds
        # A measurement is not worth the query; what the disk lacks shows where the ledger is written.
        with suppress(StoreError):
            if self._log is None:
                before = BatchReader(self._store)
                before.advance()
                self._log = BatchLog(self._store, before.last)
            self._log.append(batch)
