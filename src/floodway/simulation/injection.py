"""A query processor with a queue of its own, on a simulated clock: what a controller lets in waits inside, in order.

Tuples wait in a buffer of limited length (tail drop). In every CPU cycle a controller says how many of them may pass
into the processor, evenly spread; what has passed waits there in order of passing and cannot be taken back. This is
the downstream part of the buffer paper (section 3, after Tu et al.), where a delay counts from the passing. In
`simulation/buffer.py` the CPU takes a tuple when it is free instead, and nothing waits inside.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from floodway.control.base import Observation
from floodway.control.loop import Loop
from floodway.simulation.buffer import CPU_CYCLE_SECONDS
from floodway.simulation.tuples import Tuples


@dataclass(frozen=True, slots=True)
class InjectionRun:
    """Tuples offered, processed, and of those late; share of time the CPU was busy."""

    offered: int
    processed: int
    late: int
    utilisation: float

    @property
    def miss_ratio(self) -> float:
        """Late tuples among those processed."""
        return self.late / self.processed if self.processed else 0.0

    @property
    def on_time_ratio(self) -> float:
        """Tuples processed within their deadline among those offered."""
        return (self.processed - self.late) / self.offered if self.offered else 0.0


def inject(tuples: Tuples, controller: Loop | None, *, limit: int, seconds: float) -> InjectionRun:
    """Run `tuples` for `seconds`; without a controller everything passes at once."""
    deadlines = [queue.deadline_seconds for queue in tuples.classes]
    arrivals = zip(tuples.arrived.tolist(), tuples.queue.tolist(), tuples.cost.tolist(), strict=True)
    waiting: deque[tuple[float, float]] = deque()  # deadline, cost
    inside: deque[tuple[float, bool]] = deque()  # when it is done, whether late
    free_at = then = busy = 0.0
    offered = processed = late = 0
    seen: Observation | None = None
    upcoming = next(arrivals, None)
    for cycle in range(round(seconds / CPU_CYCLE_SECONDS)):
        start, end = cycle * CPU_CYCLE_SECONDS, (cycle + 1) * CPU_CYCLE_SECONDS
        came = passed = done = missed = 0
        gap = 0.0
        if controller is not None and seen is not None:
            allowed = controller.step(seen).admit
            gap = 0.0 if allowed >= seen.waiting else CPU_CYCLE_SECONDS / max(allowed, 1e-9)
        while then < end:
            now = end if upcoming is None else min(upcoming[0], end)
            while waiting and (at := max(start + passed * gap, then)) < now:
                deadline, cost = waiting.popleft()
                passed += 1
                free_at = max(free_at, at) + cost
                busy += cost
                inside.append((free_at, free_at - at > deadline))
            then = now
            if now == end or upcoming is None:
                break
            came += 1
            if len(waiting) < limit:
                waiting.append((deadlines[upcoming[1]], upcoming[2]))
            upcoming = next(arrivals, None)
        while inside and inside[0][0] <= end:
            missed += inside.popleft()[1]
            done += 1
        offered, processed, late = offered + came, processed + done, late + missed
        seen = Observation(end, len(waiting) + came, kept=done, miss_ratio=missed / done if done else None)
    return InjectionRun(offered, processed, late, (busy - max(0.0, free_at - then)) / then)
