"""What the page shows, as data: the latest snapshot of every job with its recent past, and its whole past if asked.

A job's part of the snapshot is its status (`job/status/status.py`) with what the page adds: how old it is, what flows
where, the score of that, and the points of the charts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from floodway.agent.watch.metrics import Watched
from floodway.dashboard.advice import WHY
from floodway.dashboard.gauge import Flow, Gauge
from floodway.dashboard.job_sources import Reading, Source, unheard
from floodway.dashboard.network_svg import network_svg
from floodway.dashboard.past import SAMPLES, History, PageView, PastSample, recent, sample_rates, whole
from floodway.errors import InputError
from floodway.job.ledger.fold import Counts
from floodway.job.ledger.timeline import Timeline
from floodway.job.status.batches import Sketch
from floodway.job.status.status import Status

STALE_SECONDS = 15.0
LEAST_SECONDS = 0.4
GAP_SECONDS = 2.5
"""Samples further apart than this have a hole between them: nobody looked."""


@dataclass(slots=True)
class _Past:
    """What is remembered of a job: whose counts it goes with, the latest samples, and what is on no record."""

    timeline: Timeline[Counts] | None = None
    heard: tuple[float, float] | None = None
    """The time of its last status, and when that was first seen."""
    history: History = field(default_factory=History)
    seen: PageView = field(default_factory=PageView)

    def age(self, status: Status, now: float) -> float:
        """How old its last status is; one from the future, as after a clock was set back, as old as it is known."""
        if self.heard is None or self.heard[0] != status.time or now < self.heard[1]:
            self.heard = status.time, now
        return max(now - status.time, now - self.heard[1])

    @property
    def began(self) -> int | None:
        """The first second that is known of."""
        spans = self.timeline.running.spans if self.timeline else []
        return spans[0][0] if spans else self.seen.first


class Board:
    """Snapshots of a source. Asked by several pages at once it reads the source once."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._polled = float("-inf")
        # By place, and not by name: a job's name grows longer when another of the same name appears.
        self._pasts: dict[str, _Past] = {}
        self._gauges: dict[str, Gauge] = {}
        self._pictures: dict[str, str] = {}
        self._read: list[tuple[Reading, dict[str, Any], Flow | None]] = []

    def snapshot(self, *, history: bool = True) -> dict[str, Any]:
        """Everything the page shows; without history only each job's latest sample."""
        with self._lock:
            now = self._poll()
            jobs = [{**job, **self._recent(reading.place, history=history)} for reading, job, _ in self._read]
            return {"time": now, "jobs": jobs}

    def picture(self, name: str) -> str | None:
        """The network of a job as SVG, without figures; None if it has no network."""
        with self._lock:
            self._poll()
            return next((self._pictures.get(one.place) for one, _, _ in self._read if one.name == name), None)

    def whole(self, name: str) -> list[dict[str, Any]] | None:
        """The whole past of a job in some hundred samples, as far as it is on record or was seen; None if unknown."""
        with self._lock:
            self._poll()
            for reading, _, _ in self._read:
                if reading.name == name:
                    seen = self._pasts[reading.place].seen
                    return [sample.to_dict() for sample in whole(reading, self._gauges.get(reading.place), seen)]
        return None

    def watched(self) -> list[Watched]:
        """Every job as the metrics want it: copies, which nobody goes on counting in."""
        with self._lock:
            self._poll()
            return [
                Watched(
                    job=reading.name,
                    status=reading.status,
                    latencies=reading.figures.latencies.copy() if reading.figures else Sketch(),
                    load=flow.load if flow else {},
                    score=flow.score if flow else None,
                    optimum=flow.optimum if flow else None,
                )
                for reading, _, flow in self._read
            ]

    def set_mode(self, name: str, mode: str) -> None:
        """Pass a wish on to the job that was shown under this name; the page shows it when the job follows."""
        with self._lock:
            self._poll()
            known = [reading for reading, _, _ in self._read]
        reading = next((one for one in known if one.name == name), None)
        if reading is None:
            raise InputError(
                f"no job is called {name!r}", hint=f"Known: {', '.join(one.name for one in known) or 'none yet'}"
            )
        self._source.switch(reading, mode)

    def _poll(self) -> float:
        """Read the source if it is time; what time it is."""
        now = self._clock()
        if now < self._polled:  # this clock was set back; one of a job may be ahead of it all the while
            for past in self._pasts.values():
                past.history = History()
        if not 0.0 <= now - self._polled < LEAST_SECONDS:
            self._polled = now
            self._read = [(reading, *self._job(reading, now)) for reading in self._source.read()]
        return now

    def _recent(self, place: str, *, history: bool) -> dict[str, Any]:
        past = self._pasts[place].history
        latest = past.latest
        found: dict[str, Any] = {"sample": latest.to_dict() if latest else None}
        if history:
            found["history"] = [sample.to_dict() for sample in past.samples]
        return found

    def _job(self, reading: Reading, now: float) -> tuple[dict[str, Any], Flow | None]:
        status = reading.status or unheard(reading)
        heard = reading.status is not None
        second, counts, length = self._window(reading, status)
        flow = self._flow(reading, status, counts, length)
        past = self._past(reading, now, second)
        age = past.age(status, now)
        stale = not heard or age > STALE_SECONDS
        if not stale and reading.problem is None:
            load = _share(status)
            past.seen.note(int(now), latency=status.latency.mean, load=load)
            past.history.add(
                PastSample(
                    time=now,
                    latency=status.latency.mean,
                    target=status.latency.target,
                    score=flow.score if flow else None,
                    optimum=flow.optimum if flow else None,
                    load=load,
                    **sample_rates(reading, counts, length),
                )
            )
        silent = {name: now - one.time for name, one in status.nodes.items() if one.time is not None}
        return {
            **status.to_dict(),
            "name": reading.name,
            "began": past.began,
            "problem": reading.problem,
            "notes": [*reading.notes, *status.warnings],
            "age_seconds": age if heard else None,
            "stale": stale,
            "silent": {name: age for name, age in silent.items() if age > STALE_SECONDS},
            "why": {reason: f"tuples that {WHY[reason]}" for reason in status.totals.dropped if reason in WHY},
            "troubles": status.participant.troubles() if status.participant else [],
            "flow": asdict(flow) if flow else None,
            "load": dict(flow.load) if flow else Watched("", status).node_loads(),
            "score": flow.score if flow else None,
            "optimum": flow.optimum if flow else None,
            "has_picture": reading.place in self._pictures,
        }, flow

    def _window(self, reading: Reading, status: Status) -> tuple[int, Counts, int]:
        """The second that the charts end with, and the counts of the last seconds before it, as in the status."""
        timeline = reading.timeline
        end = None if timeline is None else timeline.end(status.time)
        if timeline is None or end is None:
            return int(status.time), Counts(), 0
        if reading.figures is not None:
            return end, *reading.figures.now(max(status.time, end - 1.0))
        return end, *timeline.latest(end)

    def _flow(self, reading: Reading, status: Status, counts: Counts, length: int) -> Flow | None:
        network = reading.network
        if network is None:
            self._pictures.pop(reading.place, None)
            return None
        gauge = self._gauges.get(reading.place)
        if gauge is None or gauge.network is not network:
            self._gauges[reading.place] = gauge = Gauge(network)
            self._pictures[reading.place] = network_svg(network)
        if any(counts.offered.values()):
            return gauge.measured(counts, length)
        places = status.places.items()
        return gauge.planned({at: one.arriving or 0.0 for at, one in places}, {at: one.keep for at, one in places})

    def _past(self, reading: Reading, now: float, second: int) -> _Past:
        """What is remembered of the job, with what it wrote while nobody looked."""
        past = self._pasts.get(reading.place)
        if past is None or (past.timeline is not None and past.timeline is not reading.timeline):
            past = _Past()  # another run: the past of the one before is not its past
        past.timeline = reading.timeline
        self._pasts[reading.place] = past
        last = past.history.latest
        if reading.figures is not None and (last is None or now - last.time > GAP_SECONDS):
            most = SAMPLES if last is None else min(SAMPLES, second - 1 - int(last.time))
            past.history.add(*recent(reading, self._gauges.get(reading.place), until=second - 1, most=most))
        return past


def _share(status: Status) -> float | None:
    """The load of a participant as a share of its CPU: other jobs have a score instead."""
    member = status.participant
    return member.load / member.cpu if member is not None and member.cpu else None
