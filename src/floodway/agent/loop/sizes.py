"""Bytes of links and of state, as running batches show them, and the network that is planned with them.

What a file declares of sizes is a guess; the rows of the program for links and memory (`planning/program.py`) need the
truth. Two things are measured, both as means that forget:

    tuple bytes    = bytes appended to a link / tuples appended, of every operator that another node reads
    state bytes    = bytes that operators hold / tuples that they hold, of aggregates by window and joins by count

An aggregate holds what came within its window. Spark says what its state stores hold after every batch
(`spark/query/state_meter.py`): bytes, and rows, with those that wait for the watermark. A store may take bytes without
any rows, so bytes are taken as a line over rows,

    bytes = fixed + slope · rows        by least squares over all batches

and a tuple takes slope · rows / tuples of the window: that it adds a group, or adds to one, is part of the figure. The
windows of a join by count are files, read whole by every batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from floodway.agent.loop.refinement import Counted
from floodway.network.flow import link_of
from floodway.network.model import Arc, Network, Operator, OperatorKind
from floodway.planning.selectivities import tuples_through
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.state_meter import StateSize

REMARKABLE = 0.02
"""Relative change of a size below which the plan stays as it is."""
FORGETTING = 0.9
LEAST_TUPLES = 100
LEAST_SPREAD = 0.05
"""Standard deviation of the rows of state, of their mean, from which on a line is drawn through their bytes."""
LEAST_MEMORY = 0.01
"""Share of a memory that is planned with when its fixed part takes all of it: nearly everything is then dropped."""


@dataclass
class _Mean:
    """Bytes per tuple over the latest batches."""

    bytes: float = 0.0
    tuples: float = 0.0

    def add(self, size: float, tuples: float) -> None:
        self.bytes = FORGETTING * self.bytes + size
        self.tuples = FORGETTING * self.tuples + tuples

    @property
    def value(self) -> float | None:
        return self.bytes / self.tuples if self.tuples >= LEAST_TUPLES else None


@dataclass
class _Line:
    """Bytes of state over rows, by least squares."""

    count: int = 0
    rows: float = 0.0
    bytes: float = 0.0
    rows_squared: float = 0.0
    products: float = 0.0

    def add(self, held: StateSize) -> None:
        self.count += 1
        self.rows += held.rows
        self.bytes += held.bytes
        self.rows_squared += held.rows**2
        self.products += held.rows * held.bytes

    @property
    def slope(self) -> float:
        """Bytes a row; all bytes over all rows where the rows have hardly changed."""
        spread = self.rows_squared - self.rows**2 / self.count
        if spread <= (LEAST_SPREAD * self.rows) ** 2 / self.count:
            return self.bytes / max(self.rows, 1.0)
        return max(0.0, (self.products - self.rows * self.bytes / self.count) / spread)

    @property
    def fixed(self) -> float:
        """Bytes without any rows."""
        return max(0.0, (self.bytes - self.slope * self.rows) / self.count)


@dataclass(frozen=True)
class MeasuredSizes:
    """Bytes of one tuple by producer, and bytes of state for each tuple that an operator holds.

    `fixed` are bytes by node that its state takes whatever the rates.
    """

    tuples: Mapping[str, float] = field(default_factory=dict)
    states: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)

    def applied(self, network: Network) -> Network:
        """The network with these in place of what the file says."""
        return replace(
            network,
            nodes={
                name: node
                if node.memory is None
                else replace(node, memory=max(node.memory - self.fixed.get(name, 0.0), LEAST_MEMORY * node.memory))
                for name, node in network.nodes.items()
            },
            operators={
                name: replace(
                    operator,
                    bytes=self.tuples.get(name, operator.bytes),
                    state_bytes=self.states.get(name, operator.state_bytes),
                )
                for name, operator in network.operators.items()
            },
            streams={
                name: replace(stream, bytes=self.tuples.get(name.partition("->")[0], stream.bytes))
                for name, stream in network.streams.items()
            },
        )


class NetworkSizes:
    """Sizes of a network that runs here, or of the part of it that one node runs."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._tuples: dict[str, _Mean] = {}
        self._states: dict[tuple[str, ...], float] = {}
        self._lines: dict[tuple[str, ...], _Line] = {}
        self._entered: dict[str, deque[tuple[float, float]]] = {name: deque() for name in network.operators}
        self._held: dict[tuple[str, ...], int] = {}
        self._sent: dict[str, int] = {}
        self._told = MeasuredSizes()

    def observe(self, report: FragmentReport, inside: Iterable[str]) -> MeasuredSizes | None:
        """Take in a batch of the fragment with these operators; the sizes when they have changed remarkably."""
        for sink, written in report.delivered.items():
            producer = self._sender(sink)
            if producer is not None and written.bytes:
                self._tuples.setdefault(producer, _Mean()).add(written.bytes, written.rows)
                self._sent[sink] = self._sent.get(sink, 0) + written.bytes
        self._enter(report, inside)
        for group, held in report.state.items():
            self._held[group] = held.bytes
            line = self._lines.setdefault(group, _Line())
            line.add(held)
            tuples = sum(self._tuples_held(self._network.operators[name]) for name in group)
            if tuples >= LEAST_TUPLES:
                self._states[group] = line.slope * held.rows / tuples
        found = self.measured()
        told = self._told
        if not any(_differ(*pair) for pair in _pairs(told, found)):
            return None
        self._told = found
        return found

    def measured(self) -> MeasuredSizes:
        """All that is known now."""
        tuples = {name: mean.value for name, mean in self._tuples.items()}
        states = {name: size for group, size in self._states.items() for name in group}
        fixed: dict[str, float] = {}
        for group, line in self._lines.items():
            node = self._network.operators[group[0]].node
            fixed[node] = fixed.get(node, 0.0) + line.fixed
        return MeasuredSizes({name: size for name, size in tuples.items() if size is not None}, states, fixed)

    @property
    def sent_bytes(self) -> dict[str, int]:
        """Bytes appended so far to every link `producer->consumer`."""
        return dict(self._sent)

    @property
    def state_bytes(self) -> dict[str, int]:
        """Bytes of state of every node, as of the last batches."""
        found: dict[str, int] = {}
        for group, held in self._held.items():
            node = self._network.operators[group[0]].node
            found[node] = found.get(node, 0) + held
        return found

    def _sender(self, sink: str) -> str | None:
        """The operator whose tuples go over a link; None for a sink that is none."""
        producer, arrow, consumer = sink.partition("->")
        if not arrow or producer not in self._network.operators:
            return None
        leaves = sink in self._network.outputs or link_of(self._network, Arc(producer, consumer)) is not None
        return producer if leaves else None

    def _enter(self, report: FragmentReport, inside: Iterable[str]) -> None:
        counted = Counted.of(self._network, report.lines)
        now = report.ended_seconds
        for name, count in tuples_through(self._network, counted.entered, counted.emitted, inside).items():
            operator, came = self._network.operators[name], self._entered[name]
            if operator.window is not None:
                came.append((now, count))
                while came[0][0] < now - operator.window:
                    came.popleft()

    def _tuples_held(self, operator: Operator) -> float:
        if operator.kind is OperatorKind.JOIN and operator.windows is not None:
            return sum(operator.windows)
        return sum(count for _, count in self._entered[operator.name])


def _pairs(one: MeasuredSizes, other: MeasuredSizes) -> list[tuple[Mapping[str, float], Mapping[str, float]]]:
    return [(one.tuples, other.tuples), (one.states, other.states), (one.fixed, other.fixed)]


def _differ(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return any(abs(size - before.get(name, 0.0)) > REMARKABLE * before.get(name, 0.0) for name, size in after.items())
