"""Deadlines at the sink: which results came in time, counted where they become visible."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from floodway.job.ledger.ledger import LedgerLine, Reason
from floodway.network.model import Network
from floodway.spark.query.fragment_query import FragmentReport
from floodway.spark.query.sinks import Written


class Deadlines:
    """Counts results in time and late, by stream; `overrides` are seconds by `stream/partition`.

    A result knows the queue its tuple came from as long as operators pass Floodway's columns on. Where it does not (an
    aggregate, another node), it is judged by the strictest deadline of the streams above its output.
    """

    def __init__(self, network: Network, overrides: Mapping[str, float] | None = None) -> None:
        self._network = network
        self._overrides = dict(overrides or {})
        self._above = {name: _strictest(network, out.source) for name, out in network.outputs.items()}
        self.in_time: Counter[str] = Counter()
        self.late: Counter[str] = Counter()

    def observe(self, report: FragmentReport) -> float | None:
        """Count what a batch delivered; its miss ratio, None if no result with a deadline came."""
        in_time = late = 0
        for output, written in report.delivered.items():
            if output not in self._above:
                continue
            for stream, met, missed in self._judge(output, written, report.ended_seconds):
                self.in_time[stream] += met
                self.late[stream] += missed
                in_time, late = in_time + met, late + missed
        return late / (in_time + late) if in_time + late else None

    def _judge(self, output: str, written: Written, now: float) -> Iterable[tuple[str, int, int]]:
        queues = written.queues or ("",) * len(written.tuples)
        for queue, arrival_ms, tuples in zip(queues, written.arrival_ms.tolist(), written.tuples.tolist(), strict=True):
            stream, seconds = self._deadline(queue) if queue else self._above[output]
            if seconds is None or arrival_ms < 0:
                continue
            late = now - arrival_ms / 1e3 > seconds
            yield stream, 0 if late else tuples, tuples if late else 0

    def _deadline(self, queue: str) -> tuple[str, float | None]:
        location, _, partition = queue.rpartition("/")
        stream = location.partition("->")[0]
        known = self._network.streams.get(stream)
        return stream, self._overrides.get(f"{stream}/{partition}", known.deadline if known else None)

    def to_dict(self, lines: Iterable[LedgerLine]) -> dict[str, Any]:
        """Per stream with a deadline: in time, late, purged by the cleaner; miss ratio without and with the purged."""
        purged: Counter[str] = Counter()
        for line in lines:
            if line.reason == Reason.CLEANER:
                purged[line.at.partition("->")[0]] += line.dropped
        named = {name.partition("/")[0] for name in self._overrides}
        body: dict[str, Any] = {}
        for name, stream in self._network.streams.items():
            if stream.deadline is None and name not in named:
                continue
            met, late, gone = self.in_time[name], self.late[name], purged[name]
            body[name] = {
                "deadline": stream.deadline,
                "in_time": met,
                "late": late,
                "purged": gone,
                "miss_ratio": late / (met + late) if met + late else 0.0,
                "miss_ratio_with_purged": (late + gone) / (met + late + gone) if met + late + gone else 0.0,
            }
        return body


def _strictest(network: Network, source: str) -> tuple[str, float | None]:
    """The stream with the tightest deadline of those that a producer's tuples come from."""
    above, waiting = set[str](), [source]
    while waiting:
        name = waiting.pop()
        if name in network.streams:
            above.add(name)
        else:
            waiting += network.operators[name].inputs
    deadlines = {name: network.streams[name].deadline for name in sorted(above)}
    known = {name: math.inf if seconds is None else seconds for name, seconds in deadlines.items()}
    strictest = min(known, key=known.__getitem__)
    return strictest, deadlines[strictest]
