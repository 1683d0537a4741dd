"""What changed between two tables, so that a node need not send all of its table again (long paper, 8.2.5).

Rows are told apart by their rates. A row stays unsent if the receiver's old score for the same rates is within a
tolerance of the new one; rows that are gone are simply not named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from floodway.planning.fit.node import NodeTable
from floodway.planning.fit.wire import Integers, WireError, frame, grid_rates, table_columns, table_from, unframe
from floodway.planning.program import Matrix, Vector

DELTA = 2


@dataclass(frozen=True)
class TableDelta:
    """`known[i]` is the old row to keep as new row i, or -1 where the next of `fresh` goes."""

    known: Integers
    fresh: NodeTable
    axes: tuple[Vector, ...] | None

    @property
    def share(self) -> float:
        """Part of the new table's rows that has to travel."""
        return len(self.fresh) / max(len(self.known), 1)


def table_delta(old: NodeTable, new: NodeTable, tolerance: float = 0.0) -> TableDelta:
    """The rows of `new` that `old` does not tell within `tolerance` (a part of the row's score)."""
    known = same_rows(old.rates, new.rates)
    before = np.where(known >= 0, old.scores[known] if len(old) else 0.0, np.inf)
    off = np.abs(before - new.scores) > tolerance * new.scores + 1e-12 * new.scores.max(initial=0.0)
    known[off] = -1
    fresh = known < 0
    return TableDelta(known, NodeTable(new.inputs, new.rates[fresh], new.scores[fresh]), new.axes)


def apply_delta(old: NodeTable, delta: TableDelta) -> NodeTable:
    """The receiver's new table."""
    if np.any(delta.known >= len(old)):
        raise WireError("a change refers to rows this node does not have", hint="Ask for the whole table")
    fresh = delta.known < 0
    rates = np.empty((len(delta.known), len(delta.fresh.inputs)))
    scores = np.empty(len(delta.known))
    rates[fresh], scores[fresh] = delta.fresh.rates, delta.fresh.scores
    rates[~fresh], scores[~fresh] = old.rates[delta.known[~fresh]], old.scores[delta.known[~fresh]]
    if delta.axes is not None:
        grid = grid_rates(delta.axes, delta.fresh.inputs, len(scores))
        if grid is None:
            raise WireError("a change does not fit together", hint="Ask for the whole table")
        rates = grid
    return NodeTable(delta.fresh.inputs, rates, scores, delta.axes)


def encode_delta(delta: TableDelta) -> bytes:
    """The bytes of a change; rows kept in order cost one byte each or less than the table's."""
    header, columns = table_columns(delta.fresh)
    header["known"] = len(delta.known)
    header["grid"] = None if delta.axes is None else [axis.tolist() for axis in delta.axes]
    # Runs of kept rows have a constant difference to their place, which packs into one byte a row.
    offset = np.where(delta.known < 0, 0, delta.known - np.arange(len(delta.known)) + 1)
    kept = (delta.known >= 0).astype(np.int64)
    return frame(DELTA, header, [kept, offset, *columns])


def decode_delta(message: bytes) -> TableDelta:
    """The change in a message; anything else is refused."""
    header, numbers = unframe(DELTA, message)
    size, grid = _sizes(header)
    if size < 0 or len(numbers) < 2 * size:
        raise WireError("a change is shorter than it says", hint="Ask for the whole table")
    kept = np.cumsum(numbers[:size])
    known = np.where(kept > 0, np.cumsum(numbers[size : 2 * size]) + np.arange(size) - 1, -1)
    fresh = table_from(header, numbers[2 * size :])
    if int((known < 0).sum()) != len(fresh):
        raise WireError("a change does not fit together", hint="Ask for the whole table")
    return TableDelta(known, fresh, grid)


def same_rows(old: Matrix, new: Matrix) -> Integers:
    """For every new row the old row with the same rates (to ten digits of the column's largest), or -1."""
    if not len(old) or old.shape[1] != new.shape[1]:
        return np.full(len(new), -1, dtype=np.int64)
    scale = np.maximum(np.abs(old).max(axis=0), 1e-300) * 1e-10
    both = np.round(np.vstack([old, new]) / scale).astype(np.int64)
    _, group = np.unique(both, axis=0, return_inverse=True)
    group = group.ravel()
    first = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    first[group[: len(old)][::-1]] = np.arange(len(old))[::-1]
    return first[group[len(old) :]]


def _sizes(header: dict[str, Any]) -> tuple[int, tuple[Vector, ...] | None]:
    try:
        grid = header["grid"]
        axes = None if grid is None else tuple(np.array(axis, dtype=np.float64) for axis in grid)
        return int(header["known"]), axes
    except (ValueError, KeyError, TypeError) as error:
        raise WireError("a change's header cannot be read", hint="Ask for the whole table") from error
