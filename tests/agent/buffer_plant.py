"""An engine of micro-batches on a clock of its own, with everything else real: logs, cuts, offsets, agent.

A batch takes `overhead + Σ cost` seconds and is cut when the one before has ended, as Spark does. So what the buffer
is worth can be told to the tuple, on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from floodway.agent.loop.buffering import Buffering
from floodway.agent.loop.steering import FragmentBatch, Steering
from floodway.agent.loop.steering_loop import fragments_of
from floodway.buffering.options import BufferOptions
from floodway.job.clocks import SteadyClock
from floodway.job.decision import DecisionFile, JobDecision, Mode, write_decision
from floodway.job.options.values import Target
from floodway.network.file import parse_network
from floodway.network.model import Network
from floodway.planning.factory import make_planner
from floodway.spark.log import LogWriter, create_log
from floodway.spark.log.schema import TIMESTAMP
from floodway.spark.query.journal import JournaledBatch
from floodway.spark.query.layout import RunLayout
from floodway.spark.source.accounts import Account
from floodway.spark.source.admit import admit, output_schema
from floodway.spark.source.backend import open_backend
from floodway.spark.source.cut import cut_batch
from floodway.spark.source.offsets import BatchOffset, parse_offset
from floodway.spark.source.options import parse_options

START = 1_700_000_000.0
TICK = 0.1
QUERY = "A.main"

TWO_CLASSES = """
version: 1
name: two-classes
streams:
  urgent: {max_rate: 1000, deadline: 3s}
  patient: {max_rate: 1000, deadline: 12s}
nodes: {A: {cpu: 1.0}}
operators:
  u: {node: A, from: urgent, kind: delay, cost: 0.002}
  p: {node: A, from: patient, kind: delay, cost: 0.002}
outputs: {qu: {from: u}, qp: {from: p}}
"""


def bursts(rate: float, *, high: float, low: float, half: float, seconds: float) -> NDArray[np.float64]:
    """Arrival times: `half` seconds at high·rate, as many at low·rate, and so on."""
    times = np.arange(0.0, seconds, 0.001)
    now = np.where((times // half) % 2 == 0, high, low) * rate
    total = np.concatenate(([0.0], np.cumsum(now * 0.001)))
    wanted = np.arange(int(total[-1]))
    return np.interp(wanted, total, np.concatenate((times, [seconds])))


@dataclass
class Plant:
    """One run; `offsets` are all batches cut so far, `taken` the `_id`s that each one read."""

    root: Path
    options: BufferOptions
    arrivals: Mapping[str, NDArray[np.float64]]
    network: Network = field(default_factory=lambda: parse_network(TWO_CLASSES))
    overhead: float = 0.3
    slowdown: float = 1.0
    mode: Mode = "enforce"
    now: float = 0.0
    account: dict[str, Account] = field(default_factory=dict)
    in_time: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    offsets: list[Mapping[str, BatchOffset]] = field(default_factory=list)
    taken: list[dict[str, list[int]]] = field(default_factory=list)
    silent_from: float = float("inf")
    clock_jumps: Mapping[float, float] = field(default_factory=dict)
    skew: float = 0.0

    def __post_init__(self) -> None:
        self.network = self.options.checked(self.network)
        self.layout = RunLayout(self.root)
        self.writers = {}
        for name in self.network.streams:
            create_log(self.layout.stream(self.network, name), "id bigint", stream=name)
            self.writers[name] = LogWriter(self.layout.stream(self.network, name), sync=False)
        self.backends = {
            name: open_backend(parse_options({"path": self.layout.stream(self.network, name)}))
            for name in self.network.streams
        }
        self.written = dict.fromkeys(self.network.streams, 0)
        self.last = {
            name: BatchOffset(name, backend.earliest(), backend.earliest()) for name, backend in self.backends.items()
        }
        parts = fragments_of(self.network)
        self.steering = Steering(make_planner(self.network, "exact"), parts, Target(2.0))
        self.steady = SteadyClock(lambda: self.clock, lambda: self.now)
        self.decisions = DecisionFile(self.layout.decision, monotonic=lambda: self.now)
        self.buffering = Buffering(self.options, self.network, parts, self.layout, self.steady)
        self.under_way: tuple[float, float, dict[str, NDArray[np.float64]], dict[str, tuple[int, int]]] | None = None

    @property
    def clock(self) -> float:
        """What the wall clocks of agent and writers show."""
        return START + self.now + self.skew

    def run(self, seconds: float) -> Plant:
        """Go on for some seconds."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = round(self.now + TICK, 6)
            self.skew += sum(jump for at, jump in self.clock_jumps.items() if self.now - TICK < at <= self.now)
            self._write()
            if self.under_way is not None and self.under_way[1] <= self.now:
                self._end()
            if self.now < self.silent_from:
                self._steer()
            if self.under_way is None:
                self._cut()
        return self

    def _write(self) -> None:
        for name, times in self.arrivals.items():
            end = int(np.searchsorted(times, self.now))
            count = end - self.written[name]
            if count > 0:
                stamps = ((times[self.written[name] : end] + START + self.skew) * 1e6).astype(np.int64)
                ids = pa.array(np.arange(self.written[name], end))
                self.writers[name].append(pa.record_batch({"id": ids}), arrival=pa.array(stamps).cast(TIMESTAMP))
                self.written[name] = end

    def _steer(self) -> None:
        demand = self.buffering.demand(self.steady.now(), self.steering)
        steered = self.steering.decide(dict.fromkeys(demand, 0.0), demand, self.mode, int(self.clock * 1e6))
        write_decision(self.layout.decision, self.buffering.told(steered).decision)

    def cut_with(self, decision: JobDecision) -> dict[str, BatchOffset]:
        """What the sources cut under a decision; nothing is changed."""
        found = {}
        for name, backend in self.backends.items():
            batch = cut_batch(
                self.last[name],
                backend.spans(self.last[name].end),
                decision,
                arcs=(),
                limit=None,
                skip_lost=False,
                where=name,
                silent=self.decisions.silent,
            )
            if batch is not None:
                found[name] = parse_offset(batch.to_json())
        return found

    def _cut(self) -> None:
        offsets = self.cut_with(self.decisions.read())
        if not offsets:
            return
        self.last.update(offsets)
        self.offsets.append(offsets)
        self.buffering.cut(QUERY, JournaledBatch(len(self.offsets), int(self.clock * 1e3), offsets))
        arrived, counts, taken, work = {}, {}, {}, 0.0
        for name, offset in offsets.items():
            found = offset.account()
            self.account[name] = self.account.get(name, Account()) + found
            counts[name] = found.offered, found.kept
            taken[name], arrived[name] = self.read(offset)
            assert len(taken[name]) == found.kept
            work += found.kept * 0.002
        self.taken.append(taken)
        self.under_way = self.now, self.now + self.overhead + work * self.slowdown, arrived, counts

    def read(self, offset: BatchOffset) -> tuple[list[int], NDArray[np.float64]]:
        """The `_id`s and arrival times that a journaled offset admits: what Spark's tasks would get."""
        backend = self.backends[offset.stream]
        schema = output_schema(backend.payload, ())
        batches = list(admit(backend, offset.ranges(), offset.admission, {}, schema))
        if not batches:
            return [], np.zeros(0)
        table = pa.Table.from_batches(batches)
        arrived = table.column("_arrival").cast(pa.int64()).to_numpy() / 1e6
        return table.column("_id").to_pylist(), arrived

    def _end(self) -> None:
        assert self.under_way is not None
        begun, ended, arrived, counts = self.under_way
        self.under_way = None
        waits, late = [], 0
        for name, times in arrived.items():
            latency = self.steady.now() + ended - self.now - self.steady.steady_all(times)
            missed = int((latency > (self.network.streams[name].deadline or np.inf)).sum())
            self.late[name] += missed
            self.in_time[name] += len(times) - missed
            late += missed
            waits.append(latency)
        seen = np.concatenate(waits)
        batch = FragmentBatch(
            QUERY,
            {name: offered for name, (offered, _) in counts.items()},
            {name: kept for name, (_, kept) in counts.items()},
            ended - begun,
            float(seen.mean()) if len(seen) else None,
            {},
        )
        self.buffering.ended(self.steady.now(), batch, late / len(seen) if len(seen) else None)
