"""Using what a row leaves over: raise flows towards what arrives, best score per scarcest resource first.

A row comes from a grid, so applying it leaves some room on every resource. The planner knows the constraints, and one
greedy pass makes the plan tight. On one resource and without splits this alone would be optimal.
"""

from __future__ import annotations

import numpy as np

from floodway.planning.fit.reduce import ProgramBlock
from floodway.planning.program import Vector


class Filler:
    """Plain lists on purpose: at these sizes Python floats are quicker than arrays."""

    def __init__(self, block: ProgramBlock) -> None:
        self._share = block.share
        scarcest = block.share.max(axis=0)
        density = block.value / np.where(scarcest > 0, scarcest, 1.0)
        self._order = [int(a) for a in np.argsort(-density, kind="stable") if density[a] > 0]
        self._needs = [[(int(k), float(column[k])) for k in np.flatnonzero(column)] for column in block.share.T]
        self._stream_of = block.stream_of.tolist()
        self._from_flow = [[(int(b), float(row[b])) for b in np.flatnonzero(row)] for row in block.emit_flow]
        self._from_rate = [[(int(s), float(row[s])) for s in np.flatnonzero(row)] for row in block.emit_rate]

    def fill(self, flow: Vector, rates: Vector) -> Vector:
        """Flows at least as large, still feasible; `rates` are the block's streams'."""
        room = (1.0 - self._share.dot(flow)).tolist()
        flows, arriving = flow.tolist(), rates.tolist()
        for a in self._order:
            stream = self._stream_of[a]
            if stream >= 0:
                gap = arriving[stream] - flows[a]
            else:
                gap = -flows[a]
                for b, factor in self._from_flow[a]:
                    gap += factor * flows[b]
                for s, factor in self._from_rate[a]:
                    gap += factor * arriving[s]
            if gap <= 0.0:
                continue
            needs = self._needs[a]
            for k, use in needs:
                most = room[k] / use
                if most < gap:
                    gap = most
            if gap > 0.0:
                flows[a] += gap
                for k, use in needs:
                    room[k] -= gap * use
        return np.array(flows)
