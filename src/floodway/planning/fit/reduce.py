"""A program without its free arcs, cut into blocks that share nothing.

An arc that uses no resource is *free*: letting all flow through it is optimal whatever the rest does, so it needs no
place in a table. With y the flows on the other (costly) arcs and r the rates, the program reads

    x = Z·y + G·r,   y_a <= r_s  (arc out of stream s)   or   y_a <= E·y + Er·r  (branch below an operator)
    share·y <= 1     one row a resource, as parts of its capacity

Blocks that share neither arc nor resource are planned one by one (long paper, section 8.2.4: "disjoint
blocks").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from floodway.planning.program import Matrix, Program, Vector

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ProgramBlock:
    """One independent part. Rows and columns are its own; `streams`, `arcs` place them in the program."""

    streams: Indices
    arcs: Indices
    share: Matrix
    value: Vector
    stream_of: Indices
    emit_flow: Matrix
    emit_rate: Matrix

    @property
    def direct(self) -> bool:
        """Whether every stream is one costly arc, so that rates alone make a plan (no splits to decide)."""
        return len(self.arcs) == len(self.streams) and bool(np.all(self.stream_of >= 0))

    def column_of(self) -> Indices:
        """For a direct block: the arc of every stream."""
        return np.argsort(self.stream_of)

    def clip(self, caps: Matrix, rates: Matrix) -> Matrix:
        """Flows that caps (rows × arcs) let through at `rates` (rows × streams): min(cap, what arrives).

        Never more than the caps, so what was feasible stays feasible; every stream gets an answer at any rate.
        """
        flow = caps.copy()
        for a, stream in enumerate(self.stream_of):
            arriving = rates[:, stream] if stream >= 0 else flow @ self.emit_flow[a] + rates @ self.emit_rate[a]
            np.minimum(flow[:, a], arriving, out=flow[:, a])
        return flow


@dataclass(frozen=True)
class Reduced:
    """The whole program: `costly` arcs y, x = Z·y + G·r, and the blocks."""

    program: Program
    costly: Indices
    from_flow: Matrix
    from_rate: Matrix
    rate_value: Vector
    blocks: tuple[ProgramBlock, ...]

    def arcs(self, flow: Vector, rates: Vector) -> Vector:
        """Flows on all arcs from those on the costly ones."""
        if len(flow) == len(self.from_flow):
            return flow  # every arc is costly, so they are the same
        return self.from_flow @ flow + self.from_rate @ rates


def reduce_program(program: Program) -> Reduced:
    """Eliminate the free arcs and find the blocks."""
    share = program.use / program.capacity[:, None] if len(program.use) else np.zeros((0, program.size))
    free = ~share.any(axis=0)
    costly = np.flatnonzero(~free)
    streams = len(program.streams)
    emit = _emit_rows(program)
    z = np.zeros((program.size, len(costly)))
    g = np.zeros((program.size, streams))
    z[costly, np.arange(len(costly))] = 1.0
    for a in np.flatnonzero(free):
        # Arcs are in topological order: what the producer emits is settled before its branches come up.
        if program.stream_of[a] >= 0:
            g[a, program.stream_of[a]] = 1.0
        else:
            z[a] = emit[a] @ z
            g[a] = emit[a] @ g
    parts = _blocks(program, costly, share[:, costly], program.objective @ z, emit[costly] @ z, emit[costly] @ g)
    return Reduced(program, costly, z, g, program.objective @ g, parts)


def _emit_rows(program: Program) -> Matrix:
    """What the producer of every inner branch emits, over the arcs; zero rows for arcs out of streams."""
    emit = np.zeros((program.size, program.size))
    inner = np.flatnonzero(program.stream_of < 0)
    emit[inner] = -program.nesting
    emit[inner, inner] += 1.0
    return emit


def _blocks(
    program: Program, costly: Indices, share: Matrix, value: Vector, emit_flow: Matrix, emit_rate: Matrix
) -> tuple[ProgramBlock, ...]:
    arcs, streams = len(costly), len(program.streams)
    label = _components(arcs, streams, share, program.stream_of[costly], emit_flow, emit_rate)
    found: list[ProgramBlock] = []
    for name in dict.fromkeys(label[:arcs].tolist()):
        own_arcs = np.flatnonzero(label[:arcs] == name)
        own_streams = np.flatnonzero(label[arcs:] == name)
        place = np.full(streams + 1, -1)  # the last entry maps "no stream" to itself
        place[own_streams] = np.arange(len(own_streams))
        rows = share[:, own_arcs]
        found.append(
            ProgramBlock(
                streams=own_streams,
                arcs=own_arcs,
                share=_needed(rows[rows.any(axis=1)]),
                value=value[own_arcs],
                stream_of=place[program.stream_of[costly][own_arcs]],
                emit_flow=emit_flow[np.ix_(own_arcs, own_arcs)],
                emit_rate=emit_rate[np.ix_(own_arcs, own_streams)],
            )
        )
    return tuple(found)


def _components(
    arcs: int, streams: int, share: Matrix, stream_of: Indices, emit_flow: Matrix, emit_rate: Matrix
) -> Indices:
    """A label for every arc and stream; equal where they are tied by a resource, a producer or a stream."""
    label = np.arange(arcs + streams)
    ties = [np.flatnonzero(row) for row in share]
    for a in range(arcs):
        from_stream = [arcs + int(stream_of[a])] if stream_of[a] >= 0 else []
        ties.append(np.array([a, *from_stream, *np.flatnonzero(emit_flow[a]), *(arcs + np.flatnonzero(emit_rate[a]))]))
    changed = True
    while changed:
        changed = False
        for tie in ties:
            low = label[tie].min()
            if np.any(label[tie] != low):
                label[np.isin(label, label[tie])] = low
                changed = True
    return label


def _needed(rows: Matrix) -> Matrix:
    """Drop resources that another one dominates: with flows >= 0 they can never be the first to run out."""
    if len(rows) < 2:
        return rows
    rows = np.unique(rows, axis=0)
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    kept: list[int] = []
    for i, row in enumerate(rows):
        if not kept or not np.any(np.all(rows[kept] >= row, axis=1)):
            kept.append(i)
    return rows[kept]
