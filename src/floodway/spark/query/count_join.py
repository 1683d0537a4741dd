"""The default join: every tuple meets the last w tuples of the other side, and a share of the pairs matches.

With count windows (w1, w2) a tuple of the first input meets w2 tuples of the second that came before it, and the other
way round; so the join emits s·(r1·w2 + r2·w1) tuples/s, as it is planned with (long FIT paper, section 3.3). Whether a
pair matches is a hash of both identities: like every default operator the join has the load that its file describes,
whatever the tuples hold. Tuples are taken in the order of their arrival.

A result has the columns of both sides (of the second with its input's name in front where both have one), the arrival
of the older tuple, the product of the weights, and an identity made of both.

Spark keeps no state by count. The windows after batch N lie in CHECKPOINT/joins/OPERATOR/N.arrow: batch N + 1 begins
with them, and so does its replay. They move with the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from floodway.job.store.store import LocalStore
from floodway.spark.query.python_pass.steps import busy_wait
from floodway.spark.source.drops import mix

SIDE, IDENTITY, ARRIVED = "_side", "_identity", "_arrived"
SIDES = ("left", "right")
KEPT_STATES = 10
_MOST_PAIRS = 1 << 20

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


class ColumnSource(NamedTuple):
    """One column of the result: its name, and the side and the column that it is taken from."""

    name: str
    side: str
    column: str


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Where a running join keeps its windows, and which batch it works on."""

    folder: Path
    batch: int

    def read(self) -> pa.Table | None:
        """The windows after the batches before this one."""
        before = [number for number in _numbers(self.folder) if number < self.batch]
        if not before:
            return None
        with pa.OSFile(str(self.folder / f"{before[-1]}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()

    def bytes(self) -> int:
        """The size of the windows after this batch."""
        file = self.folder / f"{self.batch}.arrow"
        return file.stat().st_size if file.exists() else 0

    def write(self, windows: pa.Table) -> None:
        """Keep the windows after this batch; a replay writes the same."""
        raw = pa.BufferOutputStream()
        with pa.ipc.new_file(raw, windows.schema) as writer:
            writer.write_table(windows)
        LocalStore(self.folder).write(f"{self.batch}.arrow", raw.getvalue().to_pybytes())
        for number in _numbers(self.folder)[:-KEPT_STATES]:
            (self.folder / f"{number}.arrow").unlink(missing_ok=True)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.arrow")) if folder.is_dir() else []


@dataclass(frozen=True, slots=True)
class CountJoin:
    """A join of two sides by count windows; `salt` makes the matches of two joins independent."""

    windows: tuple[int, int]
    selectivity: float
    salt: int
    cost_seconds: float = 0.0

    def pairs(self, before: int, side: NDArray[np.int64], ids: NDArray[np.uint64]) -> Iterator[Pairs]:
        """Rows (of the first side, of the second) that match, for the rows from `before` on; rows are in order."""
        places = [np.flatnonzero(side == which) for which in (0, 1)]
        arrived = [np.cumsum(side == which) for which in (0, 1)]
        for which, other in ((0, 1), (1, 0)):
            new = places[which][places[which] >= before]
            ends = arrived[other][new]
            counts = np.minimum(ends, self.windows[other])
            for first, last in _chunks(counts):
                mine = np.repeat(new[first:last], counts[first:last])
                starts = np.repeat(ends[first:last] - counts[first:last], counts[first:last])
                steps = np.arange(len(mine)) - np.repeat(np.cumsum(counts[first:last]), counts[first:last])
                steps += np.repeat(counts[first:last], counts[first:last])
                theirs = places[other][starts + steps]
                rows = (mine, theirs) if which == 0 else (theirs, mine)
                match = self._matches(ids[rows[0]], ids[rows[1]])
                yield rows[0][match], rows[1][match]

    def _matches(self, left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.bool_]:
        if self.selectivity >= 1.0:
            return np.ones(len(left), dtype=np.bool_)
        return mix(mix(left + np.uint64(self.salt)) ^ right) < np.uint64(int(self.selectivity * 2.0**64))

    def left_over(self, side: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows that stay in the windows."""
        kept = [np.flatnonzero(side == which)[-self.windows[which] :] for which in (0, 1)]
        return np.sort(np.concatenate(kept))


def _chunks(counts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about as many pairs as fit into memory at a time."""
    first, total = 0, 0
    for row, count in enumerate(counts.tolist()):
        if total and total + count > _MOST_PAIRS:
            yield first, row
            first, total = row, 0
        total += count
    if total:
        yield first, len(counts)


def join_batches(
    join: CountJoin, taken: list[ColumnSource], schema: pa.Schema, state: JoinWindows | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The join as a function on the tagged rows of one batch, for `mapInArrow` on one partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = list(batches)
        if not pieces:
            return
        order = [(ARRIVED, "ascending"), (SIDE, "ascending"), (IDENTITY, "ascending")]
        rows = pa.Table.from_batches(pieces).sort_by(order)
        busy_wait(join.cost_seconds * rows.num_rows)
        windows = state.read() if state is not None else None
        before = 0 if windows is None else windows.num_rows
        table = rows if windows is None else pa.concat_tables([windows.cast(rows.schema), rows])
        side = table.column(SIDE).to_numpy().astype(np.int64)
        ids = table.column(IDENTITY).to_numpy().view(np.uint64)
        for left, right in join.pairs(before, side, ids):
            if len(left):
                yield from _results(table, left, right, ids, taken, schema).to_batches()
        if state is not None:
            state.write(table.take(pa.array(join.left_over(side))).combine_chunks())

    return run


def _results(
    table: pa.Table,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    ids: NDArray[np.uint64],
    taken: list[ColumnSource],
    schema: pa.Schema,
) -> pa.Table:
    rows = {"left": table.take(pa.array(left)), "right": table.take(pa.array(right))}
    found = [pc.struct_field(rows[one.side].column(one.side), one.column) for one in taken]
    identity = (mix(mix(ids[left]) ^ ids[right]) >> np.uint64(1)).astype(np.int64)
    older = pc.min_element_wise(rows["left"].column(ARRIVED), rows["right"].column(ARRIVED))
    arrival = older.cast(schema.field("_arrival").type)
    weight = pc.multiply(rows["left"].column("_weighed"), rows["right"].column("_weighed"))
    return pa.Table.from_arrays([*found, pa.array(identity), arrival, weight], schema=schema)
